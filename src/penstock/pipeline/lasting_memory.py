"""What a Python worker of Spark's keeps for good is kept out of the garbage collector's way.

After each task a worker collects garbage, and looks at all it has ever imported: 60 ms of a core, more than a small
task takes.
"""

import gc
from functools import cache


@cache
def spare_collections(work: str) -> None:
    """Called at the end of every task of a kind; the first time, when all it imports is there, it counts."""
    # What is garbage now would never be collected.
    gc.collect()
    gc.freeze()
