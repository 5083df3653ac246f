"""Share among the workers of pytest-xdist what each would do: rewriting the asserts of every test module.

Rewriting all costs a process 12 s, and pytest keeps the result beside the module. In a fresh checkout the workers
would do it side by side, each for itself. pytest has no public function for this.
"""

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.assertion.rewrite import assertstate_key

_TESTS = Path(__file__).parents[1]


def rewrite_share(config: pytest.Config) -> None:
    """Rewrite this worker's share of the test modules, where that was not done before."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("PYTEST_XDIST_WORKER_COUNT")
    if worker is None or workers is None or sys.dont_write_bytecode:
        return
    modules = sorted(_TESTS.rglob("test_*.py"))
    for module in modules[int(worker.removeprefix("gw")) :: int(workers)]:
        _rewrite(module, config)


def _rewrite(module: Path, config: pytest.Config) -> None:
    folder = rewrite.get_cache_dir(module)
    kept = folder / (module.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(module, kept) is None and rewrite.try_makedirs(folder):
        source, code = rewrite._rewrite_test(module, config)
        rewrite._write_pyc(config.stash[assertstate_key], code, source, kept)
