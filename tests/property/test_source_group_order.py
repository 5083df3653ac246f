"""The order of groups, against a model that says of every message where it stands."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.queues.group_order import GroupOrder, State

GROUPS = st.sampled_from(["a", "b", None])


class GroupOrderModel(RuleBasedStateMachine):
    """Messages are numbered as they arrive; a message is its number."""

    def __init__(self) -> None:
        super().__init__()
        self.order: GroupOrder[int] = GroupOrder()
        self.states: dict[int, State] = {}
        self.groups: dict[int, str | None] = {}
        self.arrived = 0

    def numbers(self, *states: State) -> list[int]:
        return [number for number, state in self.states.items() if state in states]

    @rule(group=GROUPS, count=st.integers(1, 5))
    def arrive(self, group: str | None, count: int) -> None:
        for _ in range(count):
            self.order.arrive(str(self.arrived), group, self.arrived)
            self.states[self.arrived] = State.WAITING
            self.groups[self.arrived] = group
            self.arrived += 1

    @rule(most=st.integers(1, 10))
    def take(self, most: int) -> None:
        possible = self.available()
        taken = self.order.take(most)
        assert len(taken) == min(most, len(possible))
        assert set(taken) <= possible
        for number in taken:
            self.states[number] = State.OUT
        for group, members in self.by_group(taken).items():
            assert members == sorted(members), "out of order within one take"
            earlier = [n for n in self.numbers(State.WAITING, State.HELD) if self.groups[n] == group]
            assert not earlier or max(members) < min(earlier), "passed an earlier one"

    @rule(data=st.data())
    @precondition(lambda self: self.numbers(State.OUT))
    def settle(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.numbers(State.OUT)))
        assert self.order.settle(str(number)) == number
        del self.states[number]
        assert self.order.settle(str(number)) is None

    @rule(data=st.data())
    @precondition(lambda self: self.numbers(State.WAITING, State.HELD))
    def settle_one_that_is_not_out(self, data: st.DataObject) -> None:
        """An ack of an expired hand-out."""
        number = data.draw(st.sampled_from(self.numbers(State.WAITING, State.HELD)))
        assert self.order.settle(str(number)) == number
        del self.states[number]

    @rule(chosen=st.lists(st.sampled_from([State.WAITING, State.HELD, State.OUT]), min_size=12, max_size=12))
    @precondition(lambda self: self.numbers(State.OUT))
    def nack_some(self, chosen: list[State]) -> None:
        """Of what is out, some is given back at once, some with a delay, and some stays out."""
        for number, state in zip(self.numbers(State.OUT), chosen, strict=False):
            if state is State.HELD:
                self.order.hold_back(str(number))
            elif state is State.WAITING:
                self.order.give_back(str(number))
            self.states[number] = state

    @rule(data=st.data())
    @precondition(lambda self: self.numbers(State.HELD))
    def end_delay(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.numbers(State.HELD)))
        self.order.give_back(str(number))
        self.states[number] = State.WAITING

    @rule(data=st.data())
    @precondition(lambda self: self.states)
    def come_again(self, data: st.DataObject) -> None:
        """The broker's lease has ended, whether or not the message is out."""
        number = data.draw(st.sampled_from(sorted(self.states)))
        self.order.arrive(str(number), self.groups[number], number)
        if self.states[number] is State.OUT:
            self.states[number] = State.WAITING

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.order) == len(self.states)
        for state in (State.WAITING, State.HELD, State.OUT):
            assert sorted(self.order.messages(state)) == sorted(self.numbers(state))

    def teardown(self) -> None:
        """Once every delay is over and everything out is settled, the rest comes, each group in order."""
        for number in self.numbers(State.HELD):
            self.order.give_back(str(number))
        for number in self.numbers(State.OUT):
            self.order.settle(str(number))
            del self.states[number]
        came: list[int] = []
        while taken := self.order.take(3):
            came += taken
            for number in taken:
                self.order.settle(str(number))
        assert sorted(came) == sorted(self.states)
        for members in self.by_group(came).values():
            assert members == sorted(members)
        assert len(self.order) == self.order.ready_lanes == 0

    def available(self) -> set[int]:
        """The messages without a group that wait, and of every group the waiting ones before any other."""
        found = {number for number in self.numbers(State.WAITING) if self.groups[number] is None}
        for group in ("a", "b"):
            for number in sorted(number for number in self.states if self.groups[number] == group):
                if self.states[number] is not State.WAITING:
                    break
                found.add(number)
        return found

    def by_group(self, numbers: list[int]) -> dict[str | None, list[int]]:
        groups: defaultdict[str | None, list[int]] = defaultdict(list)
        for number in numbers:
            if self.groups[number] is not None:
                groups[self.groups[number]].append(number)
        return groups


TestGroupOrder = GroupOrderModel.TestCase
TestGroupOrder.settings = settings(stateful_step_count=30)


def test_a_busy_group_does_not_keep_others_waiting() -> None:
    order: GroupOrder[int] = GroupOrder()
    for number in range(100):
        order.arrive(f"busy {number}", "busy", number)
    order.arrive("other", "other", 1000)

    first = order.take(10)
    second = order.take(10)

    assert first == list(range(10))
    assert second == [1000]


def test_a_run_ends_before_a_message_that_is_held_back() -> None:
    order: GroupOrder[int] = GroupOrder()
    for number in range(4):
        order.arrive(str(number), "g", number)
    assert order.take(10) == [0, 1, 2, 3]

    order.hold_back("1")
    for number in (0, 2, 3):
        order.give_back(str(number))

    assert order.take(10) == [0]
    order.settle("0")
    assert order.take(10) == []
    order.give_back("1")
    assert order.take(10) == [1, 2, 3]
