"""The queues of a server: find, create, change and delete them, and move dead letters between them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from string import hexdigits

import msgspec

from penstock.domain.addresses import Network
from penstock.domain.errors import InvalidArgument, PenstockError
from penstock.domain.ids import TsidFactory
from penstock.domain.limits import SECOND_MS
from penstock.edge.clock import Clock
from penstock.engine import AsyncShell, Entry, Pending, QueuePolicy, QueueRecord, StreamRecord
from penstock.ops.config import QueueScopes
from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, queue_does_not_exist
from penstock.sqs.keys import QueueKeys
from penstock.sqs.metrics import SqsMetrics
from penstock.sqs.names import Scope
from penstock.sqs.queue.attributes import QueueAttributes, RedrivePolicy
from penstock.sqs.queue.catalog import QueueCatalog
from penstock.sqs.queue.members import MEMBER_RECORD
from penstock.sqs.queue.move_tasks import MoveTasks
from penstock.sqs.queue.placement import CAPABILITIES, OWN_DATABASE, PartitionMap, PartitionOwnership, SoleOwner, place
from penstock.sqs.queue.policy_document import warn_of_denials
from penstock.sqs.queue.queue import (
    DEDUP_WINDOW_MS,
    SqsQueue,
    SqsRecord,
    decode_record,
    encode_record,
    queue_policy,
)
from penstock.sqs.queue.receipts import QueuePartition
from penstock.sqs.queue.redrive import check_dead_letter_queue, moved_copy
from penstock.sqs.queue.throttle import Action, Throttles

log = logging.getLogger(__name__)

_REAP_PAUSE_S = 1.0
_PROPAGATION_S = 60.0


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's region, account and partition settings."""

    region: str = "us-east-1"
    account: str = "000000000000"
    scopes: QueueScopes = QueueScopes.REQUEST
    trusted_proxies: tuple[Network, ...] = ()
    default_partitions: int = 1
    placements: PartitionMap = {}
    given_up: tuple[str, ...] = ()
    """Queues and databases whose loss is accepted at this start."""
    durable_leases: bool = False
    """Whether leases of queues that do not say so themselves survive a crash."""
    recreate_after_s: int = 0
    """How long the name of a deleted queue is refused; AWS has 60 s."""
    capabilities: tuple[str, ...] = CAPABILITIES
    """What this node supports; it does not serve a queue that needs more."""

    @property
    def home(self) -> Scope:
        """The region and account of requests without credentials."""
        return Scope(self.region, self.account)


class SqsService(QueueKeys):
    """All queues by name."""

    def __init__(
        self,
        databases: Mapping[str, AsyncShell],
        clock: Clock,
        ids: TsidFactory,
        settings: ServiceSettings,
        pause: Callable[[float], Awaitable[None]],
        ownership: PartitionOwnership | None = None,
        metrics: SqsMetrics | None = None,
    ) -> None:
        super().__init__(settings.home, settings.scopes)
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.ownership = ownership or SoleOwner(settings.capabilities)
        self.throttles = Throttles()
        self.metrics = metrics or SqsMetrics()
        self.metrics.services.append(self)
        self.moves = MoveTasks(self, pause)
        self.queues: dict[str, SqsQueue] = {}
        self._deleted_ms: dict[str, int] = {}
        # Spread over all bits: the low bits of an id alone repeat every 1,024 ms.
        epoch = ids.next_value(clock.now_ms()) * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF
        self._requests = count(1)
        self._request_head = f"{epoch:08x}-0000-4000-8000"
        own = f"{ids.next_value(clock.now_ms()):016x}"
        self._messages = count(1)
        self._message_head = f"{own[:8]}-{own[8:12]}-{own[12:]}-0000-"
        self._databases = databases
        self._shared = [shell for shell in databases.values() if not shell.ledger.store.local]
        """Databases that another process can take."""
        self._pause = pause
        self._catalog = QueueCatalog(databases, clock, ids, self._policy, settings.given_up)
        self._hand_overs: set[asyncio.Task[None]] = set()
        self.catalog_lock = asyncio.Lock()
        """Held while a queue is created, changed or deleted, so that two such operations never overlap."""

    async def open(self) -> None:
        """Assemble the queues that the databases hold; raise FailedPrecondition if something is missing."""
        for record in await self._catalog.open():
            self._assemble(record)
        for queue in self.queues.values():
            self._refresh_policy(queue)

    async def reap(self) -> None:
        """Finish interrupted operations and remove what was deleted, a bounded amount at a time; never returns."""
        while True:
            await self._catalog.work.wait()
            try:
                for name in self._catalog.unfinished():
                    async with self.catalog_lock:
                        await self.settle(name)
                if await self._catalog.remove_some():
                    continue
            except PenstockError as error:
                log.error("deleted queues are not removed yet: %s", error)
            await self._pause(_REAP_PAUSE_S)

    async def settle(self, name: str) -> None:
        """Finish an operation on this name that failed half-way; the caller holds `catalog_lock`."""
        record = await self._catalog.settle(name)
        if record is not None and name not in self.queues:
            self._assemble(record)
            self.refresh_policies()

    def charge(self, queue: SqsQueue, action: Action, tokens: int, now_ms: int | None = None) -> None:
        """Charge a request to the queue's throttle, before anything else is done.

        A caller that knows the time passes it: reading the clock costs half as much as the charge.
        """
        if not queue.throttled:
            return
        try:
            queue.throttle.charge(action, tokens, self.clock.now_ms() if now_ms is None else now_ms)
        except SqsError:
            self.metrics.count_throttled(queue.name, action)
            raise

    def new_request_id(self) -> str:
        """Return the id of the next request."""
        return f"{self._request_head}-{next(self._requests):012x}"

    def new_message_ids(self, count: int) -> list[str]:
        """Return up to 16 UUIDs: this process's id, a number within it, and a last digit."""
        stem = f"{self._message_head}{next(self._messages):011x}"
        return [stem + digit for digit in hexdigits[:count]]

    def find(self, key: str) -> SqsQueue:
        """Return the queue with this key."""
        queue = self.queues.get(key)
        if queue is None:
            raise queue_does_not_exist()
        return queue

    def of_url(self, caller: SqsCaller, url: str) -> SqsQueue:
        """Return the queue that a client's URL names, if the client may see it."""
        return self.find(self.key_of_url(caller, url))

    def find_arn(self, queue_arn: str) -> SqsQueue | None:
        """Return the queue of an ARN, if it is one of ours."""
        key = self.key_of_arn(queue_arn)
        found = None if key is None else self.queues.get(key)
        return found if found is not None and queue_arn == self.arn_of(found.name) else None

    async def create(self, name: str, attributes: QueueAttributes, tags: dict[str, str]) -> SqsQueue:
        """Create a queue that does not exist; the caller holds `catalog_lock`."""
        self._require_not_deleted_recently(name)
        partitions = attributes.effective_partitions
        if partitions > 1 and not await self.ownership.may_create_partitioned():
            raise SqsError(ErrorKind.SERVICE_UNAVAILABLE, "Not every node can serve a queue with partitions.")
        try:
            placement = tuple(place(self.settings.placements, name, partitions))
        except InvalidArgument as error:
            raise invalid_parameter(error.message) from None
        now_ms = self.clock.now_ms()
        record = SqsRecord(
            name=name,
            attributes=attributes,
            tags=tags,
            created_s=now_ms // 1000,
            modified_s=now_ms // 1000,
            placement=placement,
        )
        queue = self._assemble(await self._catalog.create(record))
        warn_of_denials(name, attributes.policy)
        self.refresh_policies()
        return queue

    async def change(self, queue: SqsQueue, record: SqsRecord) -> None:
        """Put a new record of a queue into effect once it is durable."""
        record = msgspec.structs.replace(record, modified_s=self.clock.now_ms() // 1000)
        config = encode_record(record)
        policy = self._policy(record)
        pendings = [
            (p.shell, p.shell.ledger.catalog.configure_queue(p.queue, policy, config)) for p in queue.partitions
        ]
        await _commit_all(pendings)
        warn_of_denials(queue.name, record.attributes.policy, queue.attributes.policy)
        queue.put_record(record)
        # As on AWS, a change of scope takes a minute: an id sent just before and just after means the same message.
        asyncio.get_running_loop().call_later(_PROPAGATION_S, queue.apply_deduplication_scope)
        queue.throttle.change(record.attributes.throttles, self.clock.now_ms())

    async def delete(self, queue: SqsQueue) -> None:
        """Delete a queue with all its messages."""
        del self.queues[queue.name]
        queue.waiters.close()
        try:
            await self._catalog.delete(queue.name, queue.partitions)
        except PenstockError:
            self.queues[queue.name] = queue
            queue.waiters.closed = False
            raise
        if self.settings.recreate_after_s:
            self._deleted_ms[queue.name] = self.clock.now_ms()
        queue.throttle.drop()
        self.metrics.forget(queue.name)
        self.moves.forget(queue)
        self.refresh_policies()

    def _require_not_deleted_recently(self, name: str) -> None:
        limit_ms = self.clock.now_ms() - self.settings.recreate_after_s * SECOND_MS
        self._deleted_ms = {each: deleted for each, deleted in self._deleted_ms.items() if deleted > limit_ms}
        if name in self._deleted_ms:
            raise SqsError(
                ErrorKind.QUEUE_DELETED_RECENTLY,
                f"You must wait {self.settings.recreate_after_s} seconds after deleting a queue before you can create "
                "another with the same name.",
            )

    async def purge(self, queue: SqsQueue) -> None:
        """Delete all messages of a queue."""
        await _commit_all([(p.shell, p.shell.ledger.catalog.purge(p.queue, forget_ids=True)) for p in queue.partitions])

    def check_redrive(self, name: str, attributes: QueueAttributes, text: str) -> None:
        """Raise InvalidParameterValue with the policy's text unless its queue exists, is of this kind and allows it."""
        redrive = attributes.redrive_policy
        if redrive is None:
            return
        target = self.find_arn(redrive.dead_letter_target_arn)
        if target is not None and self.place_of(target.name)[0] != self.place_of(name)[0]:
            target = None
        check_dead_letter_queue(
            redrive,
            text,
            source_arn=self.arn_of(name),
            source_fifo=attributes.fifo_queue,
            target_exists=target is not None,
            target_allows=None if target is None else target.attributes.redrive_allow_policy,
        )

    def dead_letter_sources(self, queue: SqsQueue) -> list[str]:
        """Return the names of the queues whose dead letters come to this one."""
        own_arn = self.arn_of(queue.name)
        return sorted(
            other.name
            for other in self.queues.values()
            if other.attributes.redrive_policy is not None
            and other.attributes.redrive_policy.dead_letter_target_arn == own_arn
        )

    def refresh_policies(self) -> None:
        """Check which dead-letter queues exist: without one, a queue delivers a message for ever."""
        for queue in self.queues.values():
            if queue.attributes.redrive_policy is not None:
                self._refresh_policy(queue)

    def _refresh_policy(self, queue: SqsQueue) -> None:
        policy = self._policy(queue.record)
        for partition in queue.partitions:
            partition.queue.engine.change_policy(policy)

    def damaged_messages(self) -> int:
        """Return the number of damaged messages set aside since the server started."""
        return sum(shell.ledger.damaged_messages for shell in self._databases.values())

    def last_failure(self) -> str | None:
        """Return why a database takes no commits: its latest one failed, except for a disk that has room again."""
        return next((failure for shell in self._databases.values() if (failure := shell.last_failure)), None)

    def require_owned(self) -> None:
        """Raise Unavailable if another process may serve the queues by now."""
        for shell in self._shared:
            shell.require_owned()

    @property
    def epoch(self) -> int:
        """The number of this ownership of the queues, larger than all before."""
        return self._databases[OWN_DATABASE].ledger.store.epoch

    def lost(self) -> str | None:
        """Return why this process must end: another one has taken a database."""
        return next((reason for shell in self._shared if (reason := shell.ledger.store.lost)), None)

    def answer_waiters(self) -> None:
        """Answer waiting receives with no messages, now and from now on."""
        for queue in self.queues.values():
            queue.waiters.close()

    async def close(self) -> None:
        """Answer waiting receives with no messages; finish moves and writes."""
        self.answer_waiters()
        await self.moves.close()
        if self._hand_overs:
            await asyncio.wait(self._hand_overs)
        for shell in self._databases.values():
            await shell.close()
        self.metrics.services.remove(self)

    def _policy(self, record: SqsRecord) -> QueuePolicy:
        target = self._redrive_target(record.attributes.redrive_policy)
        # A queue that is its own dead-letter queue, which AWS allows, has nowhere to move a message to.
        return queue_policy(record.attributes, has_dead_letter_queue=target is not None and target.name != record.name)

    def _redrive_target(self, redrive: RedrivePolicy | None) -> SqsQueue | None:
        return None if redrive is None else self.find_arn(redrive.dead_letter_target_arn)

    def _assemble(self, record: SqsRecord) -> SqsQueue:
        partitions = self._catalog.partitions(record)
        throttle = self.throttles.of_queue(record.name, record.attributes.throttles)
        queue = self.queues[record.name] = SqsQueue(
            record, partitions, throttle, durable_leases=self.settings.durable_leases
        )
        for partition in partitions:
            partition.queue.on_dead_letters = partial(self._hand_over, queue, partition)
        return queue

    def _hand_over(self, source: SqsQueue, partition: QueuePartition, entries: list[Entry]) -> None:
        """Move messages that were received too often to the dead-letter queue."""
        target = self._redrive_target(source.attributes.redrive_policy)
        if target is None:
            partition.shell.ledger.give_back(partition.queue, entries)
            return
        task = asyncio.create_task(self.move(partition, entries, target, self.arn_of(source.name)))
        source.hand_overs.add(task)
        self._hand_overs.add(task)
        task.add_done_callback(partial(self._handed_over, source))

    def _handed_over(self, source: SqsQueue, task: "asyncio.Task[None]") -> None:
        source.hand_overs.discard(task)
        self._hand_overs.discard(task)
        error = task.exception()
        if error is not None:
            log.error("cannot move dead letters, they stay in their queue for now: %s", error)

    async def move(
        self, source: QueuePartition, entries: list[Entry], target: SqsQueue, source_arn: str | None
    ) -> None:
        """Move entries that are being settled: in one commit within a database, else send, then settle."""
        by_partition: dict[int, list[Entry]] = {}
        for entry in entries:
            by_partition.setdefault(target.partition_for(entry.message.group).index, []).append(entry)
        pendings: list[tuple[AsyncShell, Pending]] = []
        ledger = source.shell.ledger
        failure: PenstockError | None = None
        for index, moving in by_partition.items():
            if failure is not None:
                ledger.give_back(source.queue, moving)
                continue
            goal = target.partitions[index]
            now_ms = self.clock.now_ms()
            new_id = partial(self.new_message_ids, 1)
            copies = [moved_copy(entry, source_arn, now_ms, new_id, fifo=target.fifo) for entry in moving]
            if goal.shell is source.shell:
                pendings.append((source.shell, ledger.move(source.queue, moving, goal.stream, copies)))
                continue
            try:
                await goal.shell.commit(goal.shell.ledger.send(goal.stream, copies, now_ms, dedup=False))
            except PenstockError as error:
                ledger.give_back(source.queue, moving)
                failure = error
                continue
            pendings.append((source.shell, ledger.settle(source.queue, moving)))
        await _commit_all(pendings)
        if failure is not None:
            raise failure


async def _commit_all(pendings: list[tuple[AsyncShell, Pending]]) -> None:
    for shell, pending in pendings:
        await shell.commit(pending)


def stored_policy(record: QueueRecord) -> QueuePolicy:
    """Return the policy of a stored partition, before it is known which dead-letter queues exist."""
    return queue_policy(decode_record(record.config).attributes, has_dead_letter_queue=False)


def stored_dedup_window_ms(record: StreamRecord) -> int:
    """Return the deduplication window of a stored partition."""
    if record.name == MEMBER_RECORD:
        return 0
    return DEDUP_WINDOW_MS if decode_record(record.config).attributes.fifo_queue else 0
