"""Python workers of Spark: keeps their long-lived objects out of the garbage collector."""

import gc
from functools import cache


@cache
def freeze_long_lived_objects(work: str) -> None:
    """Exclude what a kind of task has imported from garbage collection; only the first call has an effect.

    After each task, a worker collects garbage and visits all it has ever imported: 60 ms, more than a small task takes.
    """
    # Garbage that is frozen would never be collected.
    gc.collect()
    gc.freeze()
