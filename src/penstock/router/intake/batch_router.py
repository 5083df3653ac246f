"""Routes a batch in three phases: duplicates, room in the pools, submission in order (ROUTER-ROUTE-1 to 5).

It never awaits, so that it sees one snapshot of the pools, free capacity stays free, and all of a group's messages
are in their lane before the first is delivered.
"""

import logging
from collections.abc import Callable

from penstock.domain.errors import InvalidArgument
from penstock.domain.outcome import FAST_FAIL_DELAY_S
from penstock.domain.pointer import MessagePointer, decode_pointer
from penstock.edge.clock import Clock
from penstock.queues import Received
from penstock.router.intake.consumer import Consumer
from penstock.router.intake.tracker import BatchGroup, InFlightTracker, TrackedMessage
from penstock.router.monitoring.warnings import WarningCode, Warnings, WarningSeverity
from penstock.router.pools.lanes import subscription_of
from penstock.router.pools.pool import DeliveryPool
from penstock.router.pools.pools import Pools

# How long a message that a pool has no room for stays in its queue.
TURNED_AWAY_S = 5
_SHOWN_BODY_CHARS = 200

_log = logging.getLogger(__name__)
_Parsed = tuple[MessagePointer, Received]


class BatchRouter:
    """Routes batches from consumers to pools."""

    def __init__(
        self,
        tracker: InFlightTracker,
        pools: Pools,
        warnings: Warnings,
        clock: Clock,
        now_s: Callable[[], float],
    ) -> None:
        self._tracker = tracker
        self._pools = pools
        self._warnings = warnings
        self._clock = clock
        self._now_s = now_s
        self._batches = 0
        self._batch = ""

    def route(self, consumer: Consumer, batch: list[Received]) -> list[DeliveryPool]:
        """Route a batch, and return the pools that it is for."""
        self._batches += 1
        self._batch = f"{consumer.name}#{self._batches}"
        by_pool: dict[str, list[_Parsed]] = {}
        groups: dict[str, BatchGroup] = {}
        seen: dict[str, Received] = {}
        for received in batch:
            pointer = self._decode(consumer, received)
            if pointer is None or self._is_duplicate(consumer, pointer, received, seen, groups):
                continue
            by_pool.setdefault(pointer.pool_code, []).append((pointer, received))
        fed = []
        for code, messages in by_pool.items():
            pool = self._pools.pool_for(code, len(messages))
            fed.append(pool)
            free = self._not_held_elsewhere(consumer, pool, code, messages)
            if accepted := self._with_room(consumer, pool, free):
                self._submit(consumer, pool, accepted, groups)
        return fed

    def _decode(self, consumer: Consumer, received: Received) -> MessagePointer | None:
        try:
            return decode_pointer(received.body, received.group)
        except InvalidArgument as error:
            # It will never be valid: remove it, so that the queue does not redeliver it forever.
            consumer.malformed += 1
            shown = received.body[:_SHOWN_BODY_CHARS].decode(errors="backslashreplace")
            _log.warning("queue %s: message %s: %s; body: %s", consumer.name, received.broker_id, error, shown)
            self._warn(
                WarningCode.MALFORMED_MESSAGE,
                consumer,
                f"a message of {len(received.body)} bytes was removed: {error}",
            )
            consumer.settlements.discard(received)
            return None

    def _is_duplicate(
        self,
        consumer: Consumer,
        pointer: MessagePointer,
        received: Received,
        seen: dict[str, Received],
        groups: dict[str, BatchGroup],
    ) -> bool:
        """Phase 1: remove a copy of a message in flight, or store the handle of a redelivery (ROUTER-ROUTE-1)."""
        tracked = self._tracker.of_broker_id(consumer.name, received.broker_id)
        if tracked is not None:
            consumer.redelivered(tracked, received)
            # If it fails, messages after it in this batch must not overtake it.
            groups.setdefault(pointer.group, tracked.batch_group)
            return True
        earlier = seen.get(pointer.id)
        if earlier is not None and earlier.broker_id == received.broker_id:
            earlier.handle, earlier.leased_s = received.handle, received.leased_s
            return True
        if earlier is not None or self._tracker.of_message_id(pointer.id) is not None:
            _log.info("queue %s: message %s was queued twice; the copy is removed", consumer.name, pointer.id)
            consumer.settlements.discard(received)
            return True
        seen[pointer.id] = received
        return False

    def _not_held_elsewhere(
        self, consumer: Consumer, pool: DeliveryPool, code: str, messages: list[_Parsed]
    ) -> list[_Parsed]:
        """Return the messages but for those of groups that another pool still delivers (ROUTER-CONFIG-9)."""
        held = self._pools.held_elsewhere(code, pool)
        if not held:
            return messages
        self._reject(consumer, [each for each in messages if each[0].group in held], FAST_FAIL_DELAY_S)
        return [each for each in messages if each[0].group not in held]

    def _with_room(self, consumer: Consumer, pool: DeliveryPool, messages: list[_Parsed]) -> list[_Parsed]:
        """Phase 2: accept all of a pool's messages or none, but for subscriptions that have half of a shared pool."""
        if not pool.has_room(len(messages)):
            self._turn_away(consumer, pool, messages)
            return []
        if pool.has_half_room(len(messages)):
            return messages
        by_subscription: dict[str, list[_Parsed]] = {}
        for each in messages:
            by_subscription.setdefault(subscription_of(each[0].group), []).append(each)
        accepted: list[_Parsed] = []
        for subscription, own in by_subscription.items():
            if pool.has_room_for(subscription, len(own)):
                accepted += own
            else:
                self._turn_away(consumer, pool, own)
        return accepted

    def _turn_away(self, consumer: Consumer, pool: DeliveryPool, messages: list[_Parsed]) -> None:
        self._warn(
            WarningCode.QUEUE_FULL,
            consumer,
            f"pool {pool.code} has no room for messages of a batch; they return to the queue",
        )
        consumer.turned_away += len(messages)
        self._reject(consumer, messages, TURNED_AWAY_S)

    def _reject(self, consumer: Consumer, messages: list[_Parsed], delay_s: int) -> None:
        for _, received in messages:
            consumer.settlements.reject(received, delay_s)

    def _submit(
        self, consumer: Consumer, pool: DeliveryPool, messages: list[_Parsed], groups: dict[str, BatchGroup]
    ) -> None:
        """Phase 3: put the messages into the lanes, in order."""
        now_s = self._now_s()
        taken = []
        for pointer, received in messages:
            group = pointer.group
            batch_group = groups.get(group)
            if batch_group is None:
                batch_group = groups[group] = BatchGroup(self._batch, group)
            elif batch_group.blocks(pointer):
                delay_s = batch_group.delay_s(self._clock.now_ms(), ordered=received.ordered)
                consumer.settlements.reject(received, delay_s)
                continue
            message = TrackedMessage(pointer, received, consumer, pool, batch_group, now_s)
            # Free the body: the pointer has everything that is needed from here on.
            received.body = b""
            self._tracker.track(message)
            consumer.keep_lease(message)
            taken.append(message)
        pool.submit(taken)

    def _warn(self, code: WarningCode, consumer: Consumer, message: str) -> None:
        self._warnings.add(code, WarningSeverity.WARN, f"queue {consumer.name}", message)
