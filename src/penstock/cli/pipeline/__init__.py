"""`penstock pipeline`: the Spark jobs."""
