"""The stored queues of a server: partitions in one or more databases, created and deleted by intents.

Nothing is removed because something else is missing: a start that does not find what it should refuses, and names
the queue, the partition and the database (NODE-DURABLE-6).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from penstock.domain.errors import FailedPrecondition, PenstockError
from penstock.domain.ids import TsidFactory
from penstock.edge.clock import Clock
from penstock.engine import AsyncShell, Pending, QueuePolicy, StoredQueue, Stream
from penstock.sqs.queue.intents import NextStep, QueueState, next_step
from penstock.sqs.queue.members import (
    MEMBER_RECORD,
    Membership,
    check_members,
    decode_membership,
    described,
    encode_membership,
)
from penstock.sqs.queue.queue import (
    DEDUP_WINDOW_MS,
    SqsRecord,
    decode_record,
    deleted_name,
    encode_record,
    is_deleted_name,
    partition_index,
    partition_name,
)
from penstock.sqs.queue.receipts import QueuePartition

log = logging.getLogger(__name__)

# The limit of one commit of the reaper, so that no other commit waits long for it.
_SEGMENTS_PER_COMMIT = 100


class _Found(NamedTuple):
    """A stored partition."""

    database: str
    shell: AsyncShell
    stream: Stream
    queue: StoredQueue
    number: int
    record: SqsRecord


class _Removal(NamedTuple):
    shell: AsyncShell
    stream: Stream
    queue_id: int


class QueueCatalog:
    """Creates, finds and deletes stored queues; the caller lets one operation on a name end before the next."""

    def __init__(
        self,
        databases: Mapping[str, AsyncShell],
        clock: Clock,
        ids: TsidFactory,
        policy_of: Callable[[SqsRecord], QueuePolicy],
        given_up: Iterable[str] = (),
    ) -> None:
        self._databases = databases
        self._clock = clock
        self._ids = ids
        self._policy_of = policy_of
        self._given_up = frozenset(given_up)
        self._removals: deque[_Removal] = deque()
        self._unfinished: set[str] = set()
        self.work = asyncio.Event()
        """Set while the reaper has something to do."""

    async def open(self) -> list[SqsRecord]:
        """Check that everything is there, finish what a crash interrupted, and return the queues."""
        found = self._survey()
        self._check_members(found)
        by_birth: dict[tuple[str, int], list[_Found]] = {}
        for each in found:
            by_birth.setdefault((each.record.name, each.record.birth), []).append(each)
        # All are checked before the first is changed.
        steps = [(self._step(partitions), partitions) for partitions in by_birth.values()]
        await self._join_members()
        records: list[SqsRecord] = []
        for step, partitions in steps:
            record = await self._take(step, partitions)
            if record is not None:
                records.append(record)
        return records

    def partitions(self, record: SqsRecord) -> list[QueuePartition]:
        """Return the partitions of a queue that exists."""
        partitions: list[QueuePartition] = []
        for index, database in enumerate(record.placement):
            shell, name = self._databases[database], partition_name(record.name, index)
            catalog = shell.ledger.catalog
            partitions.append(QueuePartition(index, shell, catalog.streams[name], catalog.queues[name]))
        return partitions

    async def create(self, record: SqsRecord) -> SqsRecord:
        """Store a new queue and return its record; if that fails, what is left of it goes later."""
        record = msgspec.structs.replace(record, birth=self._ids.next_value(self._clock.now_ms()))
        databases = dict.fromkeys(record.placement)
        if len(databases) == 1:
            await _commit_all(self._create_in(databases, record))
            return record
        self._unfinished.add(record.name)
        try:
            creating = msgspec.structs.replace(record, state=QueueState.CREATING)
            await _commit_all(self._create_in(databases, creating))
            await self._mark_live(self.partitions(record), record)
        except BaseException:
            self.work.set()
            raise
        self._unfinished.discard(record.name)
        return record

    async def delete(self, name: str, partitions: Iterable[QueuePartition]) -> None:
        """Delete a queue; once one database has recorded it, the others follow, even after an error."""
        streams = [(partition.shell, partition.stream) for partition in partitions]
        self._unfinished.add(name)
        try:
            await self._mark_deleting(streams)
        except PenstockError as error:
            if not any(is_deleted_name(stream.name) for _, stream in streams):
                self._unfinished.discard(name)
                raise
            log.error("%s is deleted in some databases, the others follow: %s", name, error)
            self.work.set()
        except BaseException:
            self.work.set()
            raise
        else:
            self._unfinished.discard(name)

    async def settle(self, name: str) -> SqsRecord | None:
        """Finish an operation on this name that failed half-way; return the queue if it exists after all."""
        if name not in self._unfinished:
            return None
        by_birth: dict[int, list[_Found]] = {}
        for each in self._survey():
            if each.record.name == name:
                by_birth.setdefault(each.record.birth, []).append(each)
        result: SqsRecord | None = None
        for partitions in by_birth.values():
            result = await self._take(self._step(partitions), partitions) or result
        self._unfinished.discard(name)
        return result

    def unfinished(self) -> list[str]:
        """Return the names that `settle` has something to do for."""
        return sorted(self._unfinished)

    async def remove_some(self) -> bool:
        """Remove a bounded part of what was deleted; return False if nothing is left to remove."""
        if not self._removals:
            if not self._unfinished:
                self.work.clear()
            return False
        shell, stream, queue_id = self._removals[0]
        catalog = shell.ledger.catalog
        totals = await asyncio.to_thread(shell.ledger.store.totals, queue_id)
        if totals.messages > _SEGMENTS_PER_COMMIT:
            await shell.commit(catalog.shrink_stream(stream, _SEGMENTS_PER_COMMIT))
        else:
            await shell.commit(catalog.drop_stream(stream))
            self._removals.popleft()
        return True

    # What the databases hold

    def _survey(self) -> list[_Found]:
        found: list[_Found] = []
        for database, shell in self._databases.items():
            catalog = shell.ledger.catalog
            for queue in catalog.queues.values():
                stream = catalog.by_id[queue.stream_id]
                record = decode_record(queue.config)
                found.append(_Found(database, shell, stream, queue, partition_index(queue.name), record))
        return found

    def _step(self, partitions: list[_Found]) -> NextStep:
        """Return what to do with a queue; raise FailedPrecondition if it lacks something and is not given up."""
        record = partitions[0].record
        step = next_step(len(record.placement), {each.number: each.record.state for each in partitions})
        problem = self._problem(partitions, step)
        if problem is None:
            return step
        if record.name in self._given_up or not self._given_up.isdisjoint(record.placement):
            log.warning("deleting what is left of %s, which was given up: %s", record.name, problem)
            return NextStep.FINISH_DELETION
        raise FailedPrecondition(f"{problem} (if the queue is lost for good, start once with --give-up {record.name})")

    def _problem(self, partitions: list[_Found], step: NextStep) -> str | None:
        for each in partitions:
            name, home = each.record.name, each.record.placement[each.number]
            if home != each.database:
                return (
                    f"partition {each.number} of {name} is in {described(each.database)} and belongs to "
                    f"{described(home)}: are the two swapped?"
                )
            if step is NextStep.UNDO_CREATION and each.stream.seq_limit:
                return f"partition {each.number} of {name} in {described(each.database)} has messages, but no queue"
        if step is not NextStep.REFUSE:
            return None
        return self._missing(partitions)

    def _missing(self, partitions: list[_Found]) -> str:
        name, placement = partitions[0].record.name, partitions[0].record.placement
        found = {each.number for each in partitions}
        for index, database in enumerate(placement):
            if index not in found and database not in self._databases:
                return (
                    f"partition {index} of {name} belongs to {described(database)}, which is not configured; "
                    "add it to sqs.databases"
                )
            if index not in found:
                return (
                    f"partition {index} of {name} is not in {described(database)}, though partition {min(found)} is in "
                    f"{described(placement[min(found)])}; is that the database it was created in?"
                )
        states = ", ".join(f"{each.record.state.value} in {described(each.database)}" for each in partitions)
        return f"the partitions of {name} do not belong together ({states}); were their databases restored?"

    # Members

    def _check_members(self, found: list[_Found]) -> None:
        example = {
            database: f"partition {index} of {each.record.name}"
            for each in found
            for index, database in enumerate(each.record.placement)
        }
        check_members({name: _membership(shell) for name, shell in self._durable()}, self._given_up, example)

    async def _join_members(self) -> None:
        """Let each database know the others; one is known to the others only after it knows itself."""
        durable = self._durable()
        known = {name: record for name, shell in durable if (record := _membership(shell)) is not None}
        if len(durable) < 2 and not known:
            return
        now_ms = self._clock.now_ms()
        server = next((record.server for record in known.values()), None) or self._ids.next_value(now_ms)
        for name, shell in durable:
            if name not in known:
                config = encode_membership(Membership(name, server, (name,)))
                await shell.commit(shell.ledger.catalog.create_stream(MEMBER_RECORD, now_ms, config=config))
        everyone = tuple(sorted(name for name, _ in durable))
        for name, shell in durable:
            catalog = shell.ledger.catalog
            config = encode_membership(Membership(name, server, everyone))
            if catalog.streams[MEMBER_RECORD].config != config:
                await shell.commit(catalog.configure_stream(catalog.streams[MEMBER_RECORD], config))

    def _durable(self) -> list[tuple[str, AsyncShell]]:
        return [(name, shell) for name, shell in self._databases.items() if shell.ledger.store.durable]

    # Steps

    async def _take(self, step: NextStep, partitions: list[_Found]) -> SqsRecord | None:
        """Take the next step with a queue; return its record if it exists then."""
        first = min(partitions, key=lambda each: each.number)
        if step is NextStep.SERVE:
            return first.record
        log.warning("%s: %s of a queue that a crash or an error interrupted", first.record.name, step.value)
        if step is NextStep.FINISH_CREATION:
            record = msgspec.structs.replace(first.record, state=QueueState.LIVE)
            await self._mark_live(partitions, record)
            return record
        if step is NextStep.UNDO_CREATION:
            # Not marked first: partitions marked and not marked would look like those of a damaged queue.
            drops = [(each.shell, each.shell.ledger.catalog.drop_stream(each.stream)) for each in partitions]
            await _commit_all(drops)
            return None
        await self._mark_deleting(
            [(each.shell, each.stream) for each in partitions if each.record.state is not QueueState.DELETING]
        )
        for each in partitions:
            if each.record.state is QueueState.DELETING:
                self._remove_later(each.shell, each.stream, each.queue.id)
        return None

    def _create_in(self, databases: Iterable[str], record: SqsRecord) -> list[tuple[AsyncShell, Pending]]:
        return [
            (self._databases[database], self._create_partition(self._databases[database], record, index))
            for database in databases
            for index in range(len(record.placement))
            if record.placement[index] == database
        ]

    def _create_partition(self, shell: AsyncShell, record: SqsRecord, index: int) -> Pending:
        return shell.ledger.catalog.create_stream_with_queue(
            partition_name(record.name, index),
            self._policy_of(record),
            self._clock.now_ms(),
            config=encode_record(record),
            dedup_window_ms=DEDUP_WINDOW_MS if record.attributes.fifo_queue else 0,
        )

    async def _mark_live(self, partitions: Iterable[QueuePartition | _Found], record: SqsRecord) -> None:
        policy, config = self._policy_of(record), encode_record(record)
        await _commit_all(
            [(each.shell, each.shell.ledger.catalog.configure_queue(each.queue, policy, config)) for each in partitions]
        )

    async def _mark_deleting(self, partitions: list[tuple[AsyncShell, Stream]]) -> None:
        """Mark partitions as deleted, one database after the other, and remove them when all are marked."""
        removals: list[_Removal] = []
        for shell in dict.fromkeys(shell for shell, _ in partitions):
            pendings: list[tuple[AsyncShell, Pending]] = []
            for stream in [stream for owner, stream in partitions if owner is shell]:
                (queue,) = stream.queues.values()
                record = msgspec.structs.replace(decode_record(queue.config), state=QueueState.DELETING)
                name = deleted_name(stream.name, stream.id)
                removals.append(_Removal(shell, stream, queue.id))
                pendings.append((shell, shell.ledger.catalog.retire_stream(stream, name, encode_record(record))))
            await _commit_all(pendings)
        for removal in removals:
            self._remove_later(*removal)

    def _remove_later(self, shell: AsyncShell, stream: Stream, queue_id: int) -> None:
        self._removals.append(_Removal(shell, stream, queue_id))
        self.work.set()


def _membership(shell: AsyncShell) -> Membership | None:
    stream = shell.ledger.catalog.streams.get(MEMBER_RECORD)
    return None if stream is None else decode_membership(stream.config)


async def _commit_all(pendings: list[tuple[AsyncShell, Pending]]) -> None:
    """Wait for all; raise the first error once every one of them is done."""
    failure: PenstockError | None = None
    for shell, pending in pendings:
        try:
            await shell.commit(pending)
        except PenstockError as error:
            failure = failure or error
    if failure is not None:
        raise failure
