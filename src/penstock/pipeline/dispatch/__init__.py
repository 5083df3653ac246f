"""Bulk dispatch on Spark: PENDING jobs are planned as DataFrames and published by tasks, each of which owns its groups.

The rules are those of `core.plan`; what a task publishes with is the scheduler's own code.
"""
