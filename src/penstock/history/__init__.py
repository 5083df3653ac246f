"""The data pipeline on Spark: fan-out, dispatch, facts, audit, replay, repartition, report."""
