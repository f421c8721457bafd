#!/usr/bin/env bash
# Checks and tests the Python helper on real servers; arguments go to pytest. Packages go to a virtual environment in target/.
#
#   PYTHON      the Python to test with, 3.11 or later for these pinned packages (python3)
#   RL_SERVER   the server to test on (redis-server)
#   RL_MODULE   the module to load (target/release/libredis_token_bucket.so, built if it is missing)
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
venv=$root/target/python/venv

if [ -z "${RL_MODULE:-}" ]; then
    RL_MODULE=$root/target/release/libredis_token_bucket.so
    [ -e "$RL_MODULE" ] || (cd "$root" && cargo build --release --locked)
fi
export RL_MODULE

if ! cmp -s requirements-dev.txt "$venv/installed.txt"; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
    cp requirements-dev.txt "$venv/installed.txt"
fi

"$venv/bin/ruff" format --check --quiet .
"$venv/bin/ruff" check --quiet .
"$venv/bin/mypy"
exec "$venv/bin/python" -m pytest -p no:cacheprovider "$@"
