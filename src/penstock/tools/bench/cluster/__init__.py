"""The benchmark of several nodes: what they cost, and how long a take-over takes."""
