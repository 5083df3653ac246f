"""The pipeline on Spark: fan-out, dispatch, audit and replay in bulk, and its steady state."""
