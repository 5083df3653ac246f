"""No micro-batch after the one that runs: what `StreamingQuery.stop` lacks.

`stop` breaks off whatever runs, and between two batches that follow each other without a pause nobody is quick enough
to call it. A query whose state says that it has ended begins no other batch, and one that is still being planned is not
carried out; only one that is being carried out comes to its end. The state has no public setter, so it is reached
through the JVM, as Spark 4.3 has it.
"""

import logging

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import get_active_spark_context

log = logging.getLogger(__name__)


def let_end(query: StreamingQuery) -> None:
    """Let a query begin no more batches; it has ended when no trigger is active, and is still to be stopped."""
    try:
        jvm = get_active_spark_context()._jvm
        assert jvm is not None
        ended = getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "TERMINATED$"), "MODULE$")
        query._jsq.streamingQuery().state().set(ended)
    except Exception as error:
        # Then a batch that begins in the wrong moment is broken off, and repeated at the next start.
        log.debug("%s cannot be told to begin no more batches: %s", query.name, error)
