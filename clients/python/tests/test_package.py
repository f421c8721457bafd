"""What would be published, installed into an empty environment and used there."""

import subprocess
import sys
import tarfile
import venv
from importlib.metadata import version
from pathlib import Path

from server import HOST, ROOT, Server

USE = """
import redis
from redis_token_bucket import Limit, Limiter, OnFailure, Policy
policy = Policy(Limit.parse("9 burst, 1/h"), Limit.parse("2 burst, 1/h"), timeout_ms=5000, on_failure=OnFailure.CLOSED)
limiter = Limiter(redis.Redis({host!r}, {port}), policy)
print([limiter.authorize({tenant!r}, "search").allowed for _ in range(3)])
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path, server: Server, tenant: str) -> None:
    run(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path, ROOT / "clients" / "python", cwd=tmp_path
    )
    [wheel], [sdist] = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "src/redis_token_bucket/py.typed"} <= names
    assert not any(name.startswith("tests") for name in names)
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, f"{wheel}[redis]", f"redis=={version('redis')}", cwd=tmp_path)
    program = USE.format(host=HOST, port=server.port, tenant=tenant)
    assert run(python, "-c", program, cwd=tmp_path) == "[True, True, False]\n"
    files = run(python, "-m", "pip", "show", "--files", "redis-token-bucket", cwd=tmp_path)
    assert "redis_token_bucket/py.typed" in files
