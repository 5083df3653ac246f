"""Python workers of Spark: how they start, and what they keep out of the garbage collector."""

import gc
import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from shlex import quote

from penstock.spark.sources import worker_start

_STREAMING = "pyspark.sql.streaming."
"""Modules of workers that connect by themselves. A daemon forks the others, and has a setting for its limit."""


def cache_directory() -> Path:
    """Return where files that make Spark start better are kept; RuntimeError if the user has no home directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def worker_python(python: str) -> str:
    """Return the command that Spark should start workers with: a script, or the same Python if none can be written."""
    text = (
        "#!/bin/sh\n# penstock/spark/sources/worker_start.py says why.\n"
        f'case "$2" in {_STREAMING}*) exec {quote(python)} {quote(worker_start.__file__)} "$2" ;; esac\n'
        f'exec {quote(python)} "$@"\n'
    )
    try:
        if Path(python).parent == cache_directory():  # it is such a script, of an earlier session
            return python
        script = cache_directory() / f"python-{sha256(text.encode()).hexdigest()[:12]}"
        if not script.is_file():
            script.parent.mkdir(parents=True, exist_ok=True)
            unfinished = script.with_suffix(f".{os.getpid()}")
            unfinished.write_text(text)
            unfinished.chmod(0o755)
            unfinished.replace(script)
    except (OSError, RuntimeError):
        return python
    return str(script)


@cache
def freeze_long_lived_objects(work: str) -> None:
    """Exclude what a kind of task has imported from garbage collection; only the first call has an effect.

    After each task, a worker collects garbage and visits all it has ever imported: 60 ms, more than a small task takes.
    """
    # Garbage that is frozen would never be collected.
    gc.collect()
    gc.freeze()
