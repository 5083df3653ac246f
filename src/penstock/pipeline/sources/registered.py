"""Telling Spark of a database without telling it the password."""

from hashlib import sha256

from pyspark.sql import SparkSession

from penstock.pipeline.database import Database
from penstock.pipeline.sources.table_source import TableSource

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def registered(spark: SparkSession, database: Database) -> str:
    """The name under which `spark.read.format` finds the tables of a database."""
    # Of the place alone: a digest of the password, however short, would be in plans.
    name = "penstock_" + sha256(f"{database.place} {database.schema}".encode()).hexdigest()[:12]
    members = {"database": database, "name": classmethod(lambda _: name)}
    spark.dataSource.register(type("PenstockTables", (TableSource,), members))
    spark.conf.set(_PUSH_DOWN, "true")
    return name
