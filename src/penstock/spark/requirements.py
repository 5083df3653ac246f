"""Finds what the pipeline needs on a machine, or says what is missing. Nothing here imports Spark."""

import os
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from penstock.spark.errors import SparkUnavailable

LEAST_JAVA = 17
PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "deltalake")
_ASK_S = 20


class Java(msgspec.Struct, frozen=True):
    """A Java that is new enough."""

    command: str
    version: str


def find_java() -> Java:
    """Return the Java that Spark would use: JAVA_HOME's, else the one on the path; SparkUnavailable if none."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    try:
        ran = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=True)
    except FileNotFoundError as error:
        raise SparkUnavailable(f"{command} not found") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise SparkUnavailable(f"{command} does not run ({error})") from error
    version = re.search(r'version "([^"]+)"', ran.stderr + ran.stdout)
    if version is None:
        raise SparkUnavailable(f"{command} reports no version")
    if java_major(version[1]) < LEAST_JAVA:
        raise SparkUnavailable(f"{version[1]} is too old")
    return Java(shutil.which(command) or command, version[1])


def java_major(version: str) -> int:
    """Return the major version: 17 of "17.0.15", 8 of the old notation "1.8.0_402"."""
    first, second = [*re.findall(r"\d+", version), "0", "0"][:2]
    return int(second) if first == "1" else int(first)


def require_spark() -> Java:
    """Return the Java that Spark will run on; SparkUnavailable says what to install if a part is missing."""
    spark_version()
    try:
        return find_java()
    except SparkUnavailable as error:
        remedy = f"install Java {LEAST_JAVA} or newer and set JAVA_HOME to it"
        raise SparkUnavailable(f"Spark needs Java {LEAST_JAVA} or newer: {error.message}; {remedy}") from error


def spark_version() -> str:
    """Return the version of PySpark; SparkUnavailable if it, or a package it needs, is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        remedy = "install them with `pip install 'penstock-events[spark]'`"
        raise SparkUnavailable(f"Python packages of the pipeline are missing ({', '.join(missing)}); {remedy}")
    try:
        return version("pyspark")
    except PackageNotFoundError:
        from pyspark.version import __version__  # a Spark distribution's own Python, on PYTHONPATH

        return str(__version__)
