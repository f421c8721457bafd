#!/usr/bin/env bash
# Checks and tests the Node helper on real servers; arguments are the tests to run. Packages are those of package-lock.json,
# Node is the machine's or scripts/node's.
#
#   RL_SERVER   the server to test on (redis-server)
#   RL_MODULE   the module to load (target/release/libredis_token_bucket.so, built if it is missing)
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

if [ -z "${RL_MODULE:-}" ]; then
    RL_MODULE=$root/target/release/libredis_token_bucket.so
    [ -e "$RL_MODULE" ] || (cd "$root" && cargo build --release --locked)
fi
export RL_MODULE
node=$("$root/scripts/node")
export PATH=$node:$PATH

if ! cmp -s package-lock.json node_modules/installed.json; then
    npm ci --no-audit --no-fund --loglevel=error
    cp package-lock.json node_modules/installed.json
fi

if grep -n '"resolved"' package-lock.json; then
    echo "package-lock.json names a registry: npm install --omit-lockfile-registry-resolved" >&2
    exit 1
fi
npm run --silent types
# A failed test may leave clients open; forced, the tests end all the same, and their servers with them. A file that hangs is
# ended after five minutes; the longest takes one.
[ $# -gt 0 ] || set -- test/*.test.js
exec node --test --test-force-exit --test-timeout=300000 "$@"
