"""Spark: the session, Python data sources, supervision of streaming queries, and packaging for executors."""
