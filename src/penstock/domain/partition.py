"""The partition of a group: one function for the server, the router, the scheduler and Spark."""

from functools import lru_cache

_OFFSET_BASIS = 2166136261
_PRIME = 16777619
_MASK_32 = 0xFFFFFFFF

# Groups repeat from message to message, and a cache hit costs a tenth of hashing; the longest ids take about 4 MiB.
_REMEMBERED_GROUPS = 16_384


@lru_cache(maxsize=_REMEMBERED_GROUPS)
def fnv1a_32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the text's UTF-8 bytes."""
    digest = _OFFSET_BASIS
    for byte in text.encode():
        digest = ((digest ^ byte) * _PRIME) & _MASK_32
    return digest


def partition_of(group: str, count: int) -> int:
    """Return the partition of a group among `count`, a power of two; messages without a group go to the first."""
    if count <= 1 or not group:
        return 0
    return fnv1a_32(group) & (count - 1)
