"""Spark: the session, Python data sources, supervision of queries, packaging for executors."""
