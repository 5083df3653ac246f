"""The breaker against a model that keeps every call in lists."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.domain.breaker import TRANSITIONS, Breaker, BreakerState, Verdict


class BreakerModel(RuleBasedStateMachine):
    """Calls overlap at will; the model knows for each whether its result still counts."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.breaker = Breaker(self.now_ms)
        self.state = "CLOSED"
        self.window: list[Verdict] = []
        self.before: list[Verdict] = []
        self.half_ms = 0
        self.opened_ms = 0
        self.successes = 0
        self.rejected = 0
        self.probes: set[int] = set()
        self.current: set[int] = set()
        self.under_way: dict[int, int] = {}
        self.made = 0
        self.seen = BreakerState.CLOSED

    def move(self, state: str) -> None:
        self.state = state
        self.current.clear()
        self.probes.clear()
        self.successes = 0
        if state == "CLOSED":
            self.window, self.before, self.half_ms = [], [], 0

    @rule(seconds=st.sampled_from([0.001, 1.0, 4.999, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)

    @rule()
    def a_call_begins(self) -> None:
        if self.state == "OPEN" and self.now_ms - self.opened_ms >= 5000:
            self.move("HALF_OPEN")
        admitted = self.state == "CLOSED" or (self.state == "HALF_OPEN" and len(self.probes) + self.successes < 3)
        ticket = self.breaker.admit(self.now_ms)
        assert (ticket is not None) == admitted
        self.look()
        if ticket is None:
            self.rejected += 1
            return
        self.made += 1
        self.under_way[self.made] = ticket
        self.current.add(self.made)
        if self.state == "HALF_OPEN":
            self.probes.add(self.made)

    @precondition(lambda self: self.under_way)
    @rule(verdict=st.sampled_from(Verdict), which=st.integers(0, 1000))
    def a_call_ends(self, verdict: Verdict, which: int) -> None:
        call = sorted(self.under_way)[which % len(self.under_way)]
        self.breaker.settle(self.under_way.pop(call), verdict, self.now_ms)
        self.look()
        if call not in self.current:
            return
        self.current.discard(call)
        if self.state == "CLOSED":
            self.count(verdict)
        else:
            self.probes.discard(call)
            self.count_probe(verdict)

    @rule(count=st.sampled_from([1, 4, 9, 10, 50]), verdict=st.sampled_from([Verdict.FAILED, Verdict.ALIVE]))
    def calls_one_after_another(self, count: int, verdict: Verdict) -> None:
        for _ in range(count):
            before = self.made
            self.a_call_begins()
            if self.made > before:
                self.a_call_ends(verdict, sorted(self.under_way).index(self.made))

    @rule()
    def somebody_resets_it(self) -> None:
        self.breaker.reset()
        self.look()
        self.move("CLOSED")
        self.rejected = 0

    def count(self, verdict: Verdict) -> None:
        if verdict is Verdict.NEUTRAL:
            return
        age_ms = self.now_ms - self.half_ms
        if len(self.window) == 50 or age_ms >= 30_000:
            self.before = self.window if age_ms < 60_000 else []
            self.window, self.half_ms = [], self.now_ms
        self.window.append(verdict)
        recent = [*self.before, *self.window]
        if verdict is Verdict.FAILED and len(recent) >= 10 and recent.count(Verdict.FAILED) >= len(recent) / 2:
            self.open()

    def count_probe(self, verdict: Verdict) -> None:
        if verdict is Verdict.FAILED:
            self.open()
        elif verdict is Verdict.ALIVE:
            self.successes += 1
            if self.successes == 3:
                self.move("CLOSED")

    def open(self) -> None:
        self.move("OPEN")
        self.opened_ms = self.now_ms

    @invariant()
    def both_agree(self) -> None:
        assert self.breaker.state == self.state
        assert self.breaker.rejected == self.rejected
        if self.state == "CLOSED":
            recent = [*self.before, *self.window]
            assert (self.breaker.calls, self.breaker.failures) == (len(recent), recent.count(Verdict.FAILED))
        assert self.breaker.opened_ms == (self.opened_ms if self.state == "OPEN" else None)

    def look(self) -> None:
        """An operation makes one move of the table at most."""
        before, self.seen = self.seen, self.breaker.state
        assert before is self.seen or (before, self.seen) in TRANSITIONS


TestBreakerModel = BreakerModel.TestCase
