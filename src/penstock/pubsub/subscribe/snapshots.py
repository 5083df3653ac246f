"""Snapshots and Seek: the calls of the Subscriber service that restart a subscription."""

import asyncio

from google.protobuf.empty_pb2 import Empty  # type: ignore[import-untyped]
from google.pubsub_v1 import types

from penstock.broker import AsyncBroker, SnapshotMetadata
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.pubsub import wire
from penstock.pubsub.errors import InvalidRequest, SnapshotTooShort
from penstock.pubsub.fields import milliseconds_of, page, set_milliseconds, updated
from penstock.pubsub.limits import MIN_SNAPSHOT_LIFE_S, SNAPSHOT_LIFE_S
from penstock.pubsub.names import project_name, project_of, snapshot_name, subscription_name
from penstock.pubsub.policies import Policies
from penstock.pubsub.wire import GrpcCall, decode, encode, has

_MUTABLE = frozenset({"expire_time", "labels"})


class Snapshots:
    """The calls for snapshots, and Seek."""

    def __init__(self, broker: AsyncBroker, clock: Clock, policies: Policies, changing: asyncio.Lock) -> None:
        self._broker = broker
        self._clock = clock
        self._policies = policies
        self._changing = changing

    async def seek(self, request: types.SeekRequest, _: GrpcCall) -> types.SeekResponse:
        """Restart a subscription from a time or a snapshot."""
        name = subscription_name(request.subscription)
        async with self._changing:
            if has(request, "time"):
                await self._broker.seek(name, milliseconds_of(request.time))
            elif request.snapshot:
                await self._broker.seek_to_snapshot(name, snapshot_name(request.snapshot))
            else:
                raise InvalidRequest("a seek needs a time or a snapshot")
        return wire.SeekResponse()

    async def create_snapshot(self, request: types.CreateSnapshotRequest, _: GrpcCall) -> types.Snapshot:
        """Retain the messages a subscription has not acked, and all published from now on."""
        name = snapshot_name(request.name)
        source = subscription_name(request.subscription)
        async with self._changing:
            expires_ms = self._expires_ms(source)
            definition = wire.Snapshot(labels=dict(request.labels))
            await self._broker.create_snapshot(name, source, expires_ms, definition=encode(definition))
        return self._stored(name)

    async def get_snapshot(self, request: types.GetSnapshotRequest, _: GrpcCall) -> types.Snapshot:
        """Return a snapshot by its name."""
        return self._stored(snapshot_name(request.snapshot))

    async def list_snapshots(self, request: types.ListSnapshotsRequest, _: GrpcCall) -> types.ListSnapshotsResponse:
        """Return the snapshots of a project."""
        project = project_name(request.project)
        found = [each for each in self._broker.replay.snapshots() if project_of(each.name) == project]
        taken, token = page(found, lambda each: each.name, request.page_size, request.page_token)
        return wire.ListSnapshotsResponse(snapshots=[_shown(each) for each in taken], next_page_token=token)

    async def update_snapshot(self, request: types.UpdateSnapshotRequest, _: GrpcCall) -> types.Snapshot:
        """Change the masked fields of a snapshot."""
        name = snapshot_name(request.snapshot.name)
        async with self._changing:
            snapshot = updated(self._stored(name), request.snapshot, request.update_mask, _MUTABLE)
            expires_ms = milliseconds_of(snapshot.expire_time)
            if expires_ms <= self._clock.now_ms():
                raise InvalidRequest("expire_time must be in the future; to remove the snapshot, delete it")
            await self._broker.update_snapshot(name, expires_ms, encode(snapshot))
        return self._stored(name)

    async def delete_snapshot(self, request: types.DeleteSnapshotRequest, _: GrpcCall) -> Empty:
        """Remove a snapshot."""
        name = snapshot_name(request.snapshot)
        async with self._changing:
            await self._broker.drop_snapshot(name)
            await self._policies.forget(name)
        return Empty()

    def _stored(self, name: str) -> types.Snapshot:
        return _shown(self._broker.replay.snapshot(name))

    def _expires_ms(self, subscription_name: str) -> int:
        """Return the expiry by Google's rule: seven days less the age of the oldest message."""
        now_ms = self._clock.now_ms()
        oldest = self._broker.rules.subscription(subscription_name).queue.engine.peek(-1, 1)
        age_ms = now_ms - oldest[0].message.sent_ms if oldest else 0
        left_ms = SNAPSHOT_LIFE_S * SECOND_MS - age_ms
        if left_ms < MIN_SNAPSHOT_LIFE_S * SECOND_MS:
            raise SnapshotTooShort(subscription_name)
        return now_ms + left_ms


def _shown(metadata: SnapshotMetadata) -> types.Snapshot:
    snapshot = decode(wire.Snapshot, metadata.definition)
    snapshot.name = metadata.name
    snapshot.topic = metadata.topic
    set_milliseconds(snapshot.expire_time, metadata.expires_ms)
    return snapshot
