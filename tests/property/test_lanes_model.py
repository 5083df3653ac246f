"""The lanes of a pool against a plain model: lists that are searched, where the lanes never search."""

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.domain.pointer import DispatchMode
from penstock.router.intake.tracker import BatchGroup, Stage, TrackedMessage
from penstock.router.pools.lanes import PoolLane, PoolLanes
from tests.rigs.router import pointer, tracked

PICK = st.integers(0, 1000)


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
        self.lanes = PoolLanes()
        self.model: list[ModelLane] = []
        self.ring: list[ModelLane] = []
        self.out: list[tuple[ModelLane, PoolLane]] = []
        self.backing_off: list[tuple[ModelLane, PoolLane]] = []
        self.batches = [BatchGroup() for _ in range(3)]
        self.numbers = count()

    @rule(group=st.sampled_from("abc"), high=st.booleans(), mode=st.sampled_from(DispatchMode), batch=PICK)
    def add(self, group: str, high: bool, mode: DispatchMode, batch: int) -> None:
        """A message comes in."""
        number = next(self.numbers)
        of = pointer(f"m{number}", group, high_priority=high, mode=mode)
        message = tracked(of, self.batches[batch % len(self.batches)], float(number))
        self.lanes.add(message)
        lane = self._model_lane(group, entry=mode is DispatchMode.IMMEDIATE)
        if not lane.waiting and lane.current is None:
            self.ring.append(lane)
        lane.waiting.append(message)

    def _model_lane(self, group: str, *, entry: bool) -> ModelLane:
        for lane in self.model:
            if not entry and not lane.entry and lane.group == group:
                return lane
        self.model.append(ModelLane(group, entry=entry))
        return self.model[-1]

    @precondition(lambda self: self.ring)
    @rule()
    def give_a_turn(self) -> None:
        """The lane that has waited longest is next, with the message that is first in it."""
        expected = self.ring.pop(0)
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
            self.ring.append(expected)
        else:
            self.model.remove(expected)

    @precondition(lambda self: self.out)
    @rule(pick=PICK)
    def fail(self, pick: int) -> None:
        """A delivery fails: what came with it in its batch and may not pass it is taken out, in order."""
        expected, lane = self.out.pop(pick % len(self.out))
        failed = expected.current
        assert failed is not None
        failed.batch_group.fail(30, 0)
        blocked = [
            each
            for each in expected.in_turn()
            if each.batch_group is failed.batch_group and each.pointer.dispatch_mode is DispatchMode.BLOCK_ON_ERROR
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
        assert pair[1].current is not None
        pair[1].current.stage = Stage.BACKING_OFF
        self.backing_off.append(pair)

    @precondition(lambda self: self.backing_off)
    @rule(pick=PICK)
    def resume(self, pick: int) -> None:
        """The back-off is over: the same message waits for a turn."""
        expected, lane = self.backing_off.pop(pick % len(self.backing_off))
        self.lanes.resume(lane)
        self.ring.append(expected)

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
        self.ring, self.backing_off = [], []

    def _held(self) -> int:
        at_rest = sum(each.current is not None for each in self.model) - len(self.out)
        return sum(len(each.waiting) for each in self.model) + at_rest

    @invariant()
    def they_agree(self) -> None:
        """Counts, lanes and the oldest message are those of the model."""
        assert self.lanes.queued == sum(len(each.waiting) for each in self.model)
        assert len(self.lanes) == len(list(self.lanes)) == len(self.model)
        assert bool(self.lanes.ring) is bool(self.ring)
        out = [expected.current for expected, _ in self.out]
        held = [each for lane in self.model for each in [*lane.waiting, lane.current] if each and each not in out]
        assert sorted(each.tracked_s for lane in self.lanes for each in lane.held()) == sorted(
            each.tracked_s for each in held
        )
        assert self.lanes.oldest_tracked_s() == min((each.tracked_s for each in held), default=None)


TestLanes = LanesAgainstModel.TestCase
TestLanes.settings = settings(stateful_step_count=40)
