"""What the pipeline needs on a machine, found or told in a sentence; nothing here imports Spark."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from penstock.pipeline.errors import SparkUnavailable
from penstock.pipeline.java import LEAST, Java, find_java

PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy")
INSTEAD = "or let `--engine inline` do without Spark"


def require_spark() -> Java:
    """The Java that Spark will run on; SparkUnavailable, with what to do, if a part is missing."""
    spark_version()
    try:
        return find_java()
    except SparkUnavailable as error:
        remedy = f"install Java {LEAST} or newer and set JAVA_HOME to it, {INSTEAD}"
        raise SparkUnavailable(f"Spark needs Java {LEAST} or newer: {error.message}; {remedy}") from error


def spark_version() -> str:
    """The installed PySpark's version; SparkUnavailable if it, or a package it needs, is not there."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        remedy = f"install them with `pip install 'penstock[spark]'`, {INSTEAD}"
        raise SparkUnavailable(f"the pipeline needs Python packages that are not here ({', '.join(missing)}); {remedy}")
    try:
        return version("pyspark")
    except PackageNotFoundError:
        from pyspark.version import __version__  # a Spark distribution's own Python, on PYTHONPATH

        return str(__version__)
