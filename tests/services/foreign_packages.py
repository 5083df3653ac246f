"""Clients that others wrote, installed once into a cache outside of the repository: npm's and PyPI's."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.services import unavailable

INSTALL_S = 300

JAVASCRIPT = ("@aws-sdk/client-sqs@3.1164.0", "sqs-consumer@14.2.8")
CELERY = ("celery==5.7.0", "kombu==5.7.0", "pycurl", "python-dateutil<3")


def cache() -> Path:
    """Where packages are kept between runs."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-tests"
    return Path(os.environ.get("PENSTOCK_TEST_CACHE") or default)


def installed(service: str, name: str, command: Sequence[str]) -> Path:
    """A folder with what a command installs; `{}` in it is the folder. Installed once, whoever asks first."""
    target = cache() / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        unfinished = target.with_name(f"{name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        words = [word.replace("{}", str(unfinished)) for word in command]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            unavailable(service, f"{command[0]} took more than {INSTALL_S} s")
        if ran.returncode:
            unavailable(service, f"{command[0]} cannot install it: {ran.stderr[-1000:]}")
        unfinished.rename(target)
    return target


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """A folder `node_modules` with the JavaScript SDK and sqs-consumer."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    versions = "-".join(package.rpartition("@")[2] for package in JAVASCRIPT)
    quiet = ("--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--loglevel=error")
    command = ("npm", "install", "--prefix", "{}", *quiet, *JAVASCRIPT)
    return installed("the JavaScript SDK", f"npm-{versions}", command) / "node_modules"


@pytest.fixture(scope="session")
def celery_path() -> Path:
    """A folder with Celery, for PYTHONPATH."""
    command = (sys.executable, "-m", "pip", "install", "--quiet", "--target", "{}", *CELERY)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return installed("Celery", f"celery-{CELERY[0].rpartition('=')[2]}-python-{version}", command)
