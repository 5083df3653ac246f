"""The stored schemas: all revisions of one in one record."""

from zlib import crc32

import msgspec
from google.pubsub_v1 import types

from penstock.broker import AsyncBroker
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.pubsub import wire
from penstock.pubsub.errors import SchemaNotFound
from penstock.pubsub.fields import set_milliseconds
from penstock.pubsub.wire import copy_of, decode, encode

_KEY = "schema "
_decode_revisions = msgspec.msgpack.Decoder(list[bytes]).decode


class SchemaStore:
    """The revisions of every schema, oldest first."""

    def __init__(self, broker: AsyncBroker, clock: Clock, ids: TsidFactory) -> None:
        self._broker = broker
        self._clock = clock
        self._ids = ids

    def exists(self, name: str) -> bool:
        """Return whether a schema exists."""
        return self._broker.records.get(_KEY + name) is not None

    def names(self, project: str) -> list[str]:
        """Return the schemas of a project."""
        return [key.removeprefix(_KEY) for key in self._broker.records.keys(f"{_KEY}{project}/schemas/")]

    def revisions(self, name: str) -> list[types.Schema]:
        """Return all revisions of a schema, oldest first."""
        stored = self._broker.records.get(_KEY + name)
        if stored is None:
            raise SchemaNotFound(name)
        return [decode(wire.Schema, revision) for revision in _decode_revisions(stored)]

    def revision(self, name: str, revision_id: str | None) -> types.Schema:
        """Return one revision of a schema, the newest by default."""
        revisions = self.revisions(name)
        if revision_id is None:
            return revisions[-1]
        for revision in revisions:
            if revision.revision_id == revision_id:
                return revision
        raise SchemaNotFound(f"{name}@{revision_id}")

    async def put(self, name: str, revisions: list[types.Schema]) -> None:
        """Store these revisions."""
        await self._broker.put_record(_KEY + name, msgspec.msgpack.encode([encode(each) for each in revisions]))

    async def drop(self, name: str) -> None:
        """Remove a schema."""
        await self._broker.drop_record(_KEY + name)

    def new_revision(self, name: str, schema: types.Schema, others: list[types.Schema]) -> types.Schema:
        """Return a schema as a new revision, created now."""
        now_ms = self._clock.now_ms()
        taken = {other.revision_id for other in others}
        revision = copy_of(schema)
        revision.name = name
        while not revision.revision_id or revision.revision_id in taken:
            revision.revision_id = f"{crc32(self._ids.next_id(now_ms).encode()):08x}"
        set_milliseconds(revision.revision_create_time, now_ms)
        return revision
