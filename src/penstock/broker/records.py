"""Records: small values stored by key beside the topics, for data of protocol servers (schemas, policies)."""

from penstock.engine import SETTLED, Catalog, Pending

# A record is a stream without queues; no topic has a name with this character.
_PREFIX = "\x03"


def is_record(stream_name: str) -> bool:
    """Return whether a stream is a record, not a topic."""
    return stream_name.startswith(_PREFIX)


class Records:
    """Values by key; a change is visible once it is durable."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def get(self, key: str) -> bytes | None:
        """Return the value of a key, or None."""
        stream = self._catalog.streams.get(_PREFIX + key)
        return None if stream is None or stream.closing else stream.config

    def keys(self, prefix: str) -> list[str]:
        """Return the keys with a prefix, sorted."""
        names = self._catalog.streams
        return sorted(name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX + prefix))

    def put(self, key: str, value: bytes, now_ms: int) -> Pending:
        """Store a value, replacing the previous one."""
        stream = self._catalog.streams.get(_PREFIX + key)
        if stream is None:
            return self._catalog.create_stream(_PREFIX + key, now_ms, config=value)
        return self._catalog.configure_stream(stream, value)

    def drop(self, key: str) -> Pending:
        """Remove a value."""
        stream = self._catalog.streams.get(_PREFIX + key)
        return SETTLED if stream is None else self._catalog.drop_stream(stream)
