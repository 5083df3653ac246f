"""Fields that every log line within a block carries, such as the message at hand."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_EMPTY: Mapping[str, object] = MappingProxyType({})
_fields: ContextVar[Mapping[str, object]] = ContextVar("penstock_log_fields", default=_EMPTY)


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields (message_id=…, group=…, pool=…, queue=…) to every log line of the block and its tasks."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def current_fields() -> Mapping[str, object]:
    """The fields in force here."""
    return _fields.get()
