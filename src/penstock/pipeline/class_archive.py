"""Spark's classes as the JVM wants them, kept in the user's cache: with them Spark starts faster.

The JVM checks an archive against its own version and every jar, and does without one that does not fit.
"""

import os
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from penstock.pipeline.java import Java
from penstock.pipeline.requirements import spark_version


def archive_path(java: Java) -> Path:
    """Where the archive of this Java and this Spark is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    spec = find_spec("pyspark")
    place = sha256(f"{java.command}|{spec.origin if spec else ''}".encode()).hexdigest()[:8]
    return cache / "penstock" / f"spark-{spark_version()}-java-{java.version}-{place}.jsa"


def class_sharing(java: Java) -> tuple[str, ...]:
    """The JVM's options to use the archive, if there is one."""
    try:
        archive = archive_path(java)
        return (f"-XX:SharedArchiveFile={archive}",) if archive.is_file() else ()
    except (OSError, RuntimeError):  # nobody's home
        return ()


def class_archiving(archive: Path) -> str:
    """The JVM's option to write an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive}"
