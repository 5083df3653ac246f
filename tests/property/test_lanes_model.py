"""The lanes of a pool against a plain model: lists that are searched, where the lanes never search."""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.domain.pointer import DispatchMode
from penstock.router.intake.tracker import BatchGroup, Stage, TrackedMessage
from penstock.router.pools.lanes import SHARED_S, PoolLane, PoolLanes, subscription_of
from tests.rigs.router import pointer, tracked

PICK = st.integers(0, 1000)
GROUPS = ("s:a", "s:b", "s:c", "t:a", "t:b", "alone")


class ModelLane:
    """A group's messages in the order they came, and the one that is out."""

    def __init__(self, group: str, *, entry: bool) -> None:
        self.group = group
        self.entry = entry
        self.waiting: list[TrackedMessage] = []
        self.current: TrackedMessage | None = None

    def in_turn(self) -> list[TrackedMessage]:
        """Waiting messages in the order they will go: a stable sort, high priority first."""
        return sorted(self.waiting, key=lambda message: not message.pointer.high_priority)


class LanesAgainstModel(RuleBasedStateMachine):
    """Adds messages, gives turns and ends them in every way a pool does."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.lanes = PoolLanes(lambda: self.now_s)
        self.model: list[ModelLane] = []
        # The subscriptions that wait for a turn, and the waiting lanes of each.
        self.ring: list[str] = []
        self.rings: dict[str, list[ModelLane]] = {}
        self.subscriptions: list[tuple[float, str]] = []
        self.limits: dict[str, int] = {}
        # Those that have a lane, in the order they came.
        self.known: list[str] = []
        self.out: list[tuple[ModelLane, PoolLane]] = []
        self.backing_off: list[tuple[ModelLane, PoolLane]] = []
        self.batches = [BatchGroup() for _ in range(3)]
        self.numbers = count()

    @rule(passed_s=st.sampled_from([1.0, SHARED_S]))
    def time_passes(self, passed_s: float) -> None:
        """A pool is shared for a while after messages of two subscriptions came in a row."""
        self.now_s += passed_s

    @rule(
        group=st.sampled_from(GROUPS),
        high=st.booleans(),
        mode=st.sampled_from(DispatchMode),
        batch=PICK,
        ordered=st.booleans(),
    )
    def add(self, group: str, high: bool, mode: DispatchMode, batch: int, ordered: bool) -> None:
        """A message comes in."""
        number = next(self.numbers)
        of = pointer(f"m{number}", group, high_priority=high, mode=mode)
        message = tracked(of, self.batches[batch % len(self.batches)], self.now_s + number / 1e6, ordered=ordered)
        self.lanes.add(message)
        lane = self._model_lane(group, entry=mode is DispatchMode.IMMEDIATE)
        if not lane.waiting and lane.current is None:
            self._queue(lane)
        lane.waiting.append(message)
        self.subscriptions.append((message.tracked_s, subscription_of(group)))

    def _queue(self, lane: ModelLane) -> None:
        self.rings.setdefault(subscription_of(lane.group), []).append(lane)
        self._queue_subscription(subscription_of(lane.group))

    def _queue_subscription(self, subscription: str) -> None:
        if self.rings.get(subscription) and subscription not in self.ring:
            self.ring.append(subscription)

    @rule(group=st.sampled_from(GROUPS), turns=st.integers(0, 3))
    def limit(self, group: str, turns: int) -> None:
        """A subscription's endpoint accepts nothing, or only probes."""
        subscription = subscription_of(group)
        self.lanes.limit(subscription, turns)
        if subscription in self.known:
            self.limits[subscription] = turns
            self._queue_subscription(subscription)

    @rule(group=st.sampled_from(GROUPS))
    def lift_limit(self, group: str) -> None:
        """The endpoint accepts messages again."""
        subscription = subscription_of(group)
        self.lanes.lift_limit(subscription)
        if self.limits.pop(subscription, None) is not None:
            self._queue_subscription(subscription)

    def _may_not(self, subscription: str, permits: int) -> bool:
        most = (permits + 1) // 2 if self._is_shared() else 1_000_000
        return self._delivering(subscription) >= min(most, self.limits.get(subscription, 1_000_000))

    def _is_shared(self) -> bool:
        pairs = zip(self.subscriptions, self.subscriptions[1:], strict=False)
        return any(later[1] != earlier[1] and self.now_s - later[0] < SHARED_S for earlier, later in pairs)

    def _delivering(self, subscription: str) -> int:
        return sum(subscription_of(each.group) == subscription for each, _ in self.out)

    def _model_lane(self, group: str, *, entry: bool) -> ModelLane:
        for lane in self.model:
            if not entry and not lane.entry and lane.group == group:
                return lane
        self.model.append(ModelLane(group, entry=entry))
        return self.model[-1]

    @precondition(lambda self: self.ring)
    @rule(permits=st.integers(1, 5))
    def give_a_turn(self, permits: int) -> None:
        """The subscription that has waited longest is next, with the lane that has, and the message first in that."""
        while self.ring and self._may_not(self.ring[0], permits):
            self.ring.pop(0)
        assert self.lanes.has_turn(permits) is bool(self.ring)
        if self.ring:
            self._give_a_turn()

    def _give_a_turn(self) -> None:
        subscription = self.ring.pop(0)
        expected = self.rings[subscription].pop(0)
        self._queue_subscription(subscription)
        if expected.current is None:
            expected.current = expected.in_turn()[0]
            expected.waiting.remove(expected.current)
        lane = self.lanes.next()
        assert lane.group == expected.group
        assert lane.current is expected.current
        assert lane.current.stage is Stage.DELIVERING
        self.out.append((expected, lane))

    @precondition(lambda self: self.out)
    @rule(pick=PICK)
    def succeed(self, pick: int) -> None:
        """A delivery ends well."""
        expected, lane = self.out.pop(pick % len(self.out))
        self._end_turn(expected, lane)

    def _end_turn(self, expected: ModelLane, lane: PoolLane) -> None:
        lane.current = expected.current = None
        self.lanes.release(lane)
        if expected.waiting:
            self._queue(expected)
        else:
            self.model.remove(expected)
            self._queue_subscription(subscription_of(expected.group))

    @rule()
    def permits_change(self) -> None:
        """Every subscription may try for a turn."""
        self.lanes.queue_all()
        for subscription in self.known:
            self._queue_subscription(subscription)

    @precondition(lambda self: self.out)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        """A delivery fails: what may not pass it is taken out, in order."""
        expected, lane = self.out.pop(pick % len(self.out))
        failed = expected.current
        assert failed is not None
        failed.batch_group.fail(30, 0)
        blocked = [
            each
            for each in expected.in_turn()
            if each.pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR
            and (each.batch_group is failed.batch_group or each.received.ordered)
        ]
        assert self.lanes.take_blocked(lane, failed) == blocked
        expected.waiting = [each for each in expected.waiting if each not in blocked]
        self.batches = [BatchGroup() if each is failed.batch_group else each for each in self.batches]
        self._end_turn(expected, lane)

    @precondition(lambda self: self.out)
    @rule(pick=PICK)
    def back_off(self, pick: int) -> None:
        """A delivery will be tried again: its lane keeps its turn, in no ring."""
        pair = self.out.pop(pick % len(self.out))
        self.lanes.back_off(pair[1])
        self.backing_off.append(pair)
        self._queue_subscription(subscription_of(pair[0].group))

    @precondition(lambda self: self.backing_off)
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        """The back-off is over: the same message waits for a turn."""
        expected, lane = self.backing_off.pop(pick % len(self.backing_off))
        self.lanes.resume(lane)
        self._queue(expected)

    @rule()
    def clear(self) -> None:
        """All that is not being delivered comes out, each group's in order."""
        out = [expected for expected, _ in self.out]
        removed = self.lanes.clear()
        for expected in self.model:
            of_lane = expected.in_turn()
            if expected not in out and expected.current is not None:
                of_lane.insert(0, expected.current)
            assert [each for each in removed if each in of_lane] == of_lane
        assert len(removed) == len(set(removed)) == self._held()
        for expected in self.model:
            expected.waiting = []
        self.model = out
        self.ring, self.rings, self.backing_off = [], {}, []

    def _held(self) -> int:
        at_rest = sum(each.current is not None for each in self.model) - len(self.out)
        return sum(len(each.waiting) for each in self.model) + at_rest

    @invariant()
    def subscriptions_are_known_while_they_have_lanes(self) -> None:
        """The model's own bookkeeping."""
        alive = [subscription_of(each.group) for each in self.model]
        self.known = list(dict.fromkeys([*(each for each in self.known if each in alive), *alive]))
        self.limits = {each: turns for each, turns in self.limits.items() if each in alive}
        assert self.lanes.has_limits is bool(self.limits)

    @invariant()
    def they_agree(self) -> None:
        """Counts, lanes and the oldest message are those of the model."""
        resting = [expected for expected, _ in self.backing_off]
        assert self.lanes.backing_off == len(resting)
        assert self.lanes.queued + len(resting) == self._held()
        for name in map(subscription_of, GROUPS):
            own = [each for each in self.model if subscription_of(each.group) == name]
            at_rest = sum(each.current is not None for each in own) - self._delivering(name)
            assert self.lanes.held_of(name) == sum(len(each.waiting) for each in own) + at_rest
        assert len(self.lanes) == len(list(self.lanes)) == len(self.model)
        out = [expected.current for expected, _ in self.out]
        held = [each for lane in self.model for each in [*lane.waiting, lane.current] if each and each not in out]
        assert sorted(each.tracked_s for lane in self.lanes for each in lane.held()) == sorted(
            each.tracked_s for each in held
        )
        assert self.lanes.oldest_tracked_s() == min((each.tracked_s for each in held), default=None)


TestLanes = LanesAgainstModel.TestCase
TestLanes.settings = settings(stateful_step_count=40)
