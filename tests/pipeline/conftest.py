"""One Spark session for all tests of a process: starting one takes seconds."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.spark.errors import SparkUnavailable
from penstock.spark.session import SessionSettings, spark_session
from tests.services import unavailable
from tests.services.spark_cluster import SparkCluster, running_cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session as users get it, on two cores."""
    settings = SessionSettings(
        app_name="penstock-tests", master="local[2]", streams=True, conf={"spark.sql.shuffle.partitions": "2"}
    )
    try:
        with spark_session(settings) as session:
            yield session
    except SparkUnavailable as error:
        unavailable("Spark", error.message)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. A driver is a process of its own: there is one session in this one already."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
