"""The deduplication window against a model that remembers everything."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.engine.dedup import DedupWindow

WINDOW_MS = 100

keys = st.sampled_from(["a", "b", "c", "d"])


class DedupModel(RuleBasedStateMachine):
    """Sends with ids that repeat, some of which fail, at times that only go forward."""

    def __init__(self) -> None:
        super().__init__()
        self.window: DedupWindow[int] = DedupWindow(WINDOW_MS)
        self.now_ms = 1_000
        self.sends = 0
        self.model: dict[str, tuple[int, int]] = {}

    def known(self, key: str) -> int | None:
        first_seen_ms, answer = self.model.get(key, (-WINDOW_MS, 0))
        return answer if self.now_ms - first_seen_ms < WINDOW_MS else None

    @rule(step_ms=st.sampled_from([0, 1, WINDOW_MS // 2, WINDOW_MS - 1, WINDOW_MS, 10 * WINDOW_MS]))
    def let_time_pass(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(key=keys)
    def send(self, key: str) -> None:
        answer = self.window.find(key, self.now_ms)
        assert answer == self.known(key)
        if answer is None:
            self.sends += 1
            self.window.remember(key, self.sends, self.now_ms)
            self.model[key] = (self.now_ms, self.sends)

    @rule(together=st.lists(keys, min_size=1, max_size=4))
    def send_several(self, together: list[str]) -> None:
        are_new = len(set(together)) == len(together) and all(self.known(key) is None for key in together)
        answers = [self.sends + 1 + index for index in range(len(together))]
        assert self.window.remember_new(together, answers, self.now_ms) == are_new
        if are_new:
            self.sends += len(together)
            self.model.update({key: (self.now_ms, answer) for key, answer in zip(together, answers, strict=True)})

    @rule(key=keys)
    def answer_otherwise(self, key: str) -> None:
        self.sends += 1
        self.window.remember(key, self.sends, self.now_ms)
        self.model[key] = (self.now_ms, self.sends)

    @rule(key=keys)
    def take_back(self, key: str) -> None:
        self.window.forget(key)
        self.model.pop(key, None)

    @invariant()
    def answers_are_the_models(self) -> None:
        for key in "abcde":
            assert self.window.find(key, self.now_ms) == self.known(key)

    @invariant()
    def nothing_is_kept_past_the_window(self) -> None:
        self.window.find("", self.now_ms)
        assert len(self.window) == sum(self.known(key) is not None for key in "abcd")


def test_the_window_answers_as_a_model_that_remembers_everything() -> None:
    run_state_machine_as_test(DedupModel)


def test_an_id_is_a_duplicate_until_its_window_has_passed() -> None:
    window: DedupWindow[str] = DedupWindow(300_000)
    window.remember("id", "first", 1_000)

    assert window.find("id", 1_000) == "first"
    assert window.find("id", 300_999) == "first"
    assert window.find("id", 301_000) is None


def test_a_duplicate_does_not_prolong_the_window() -> None:
    window: DedupWindow[str] = DedupWindow(100)
    window.remember("id", "first", 0)
    assert window.find("id", 99) == "first"

    assert window.find("id", 100) is None


def test_an_id_forgotten_and_remembered_again_has_its_whole_new_window() -> None:
    window: DedupWindow[str] = DedupWindow(100)
    window.remember("id", "failed", 0)
    window.forget("id")
    assert window.find("id", 10) is None
    window.remember("id", "kept", 50)

    assert window.find("id", 100) == "kept"
    assert window.find("id", 149) == "kept"
    assert window.find("id", 150) is None


def test_memory_follows_the_window_and_not_the_ids_ever_seen() -> None:
    window: DedupWindow[int] = DedupWindow(1_000)
    for now_ms in range(0, 100_000, 10):
        window.find(str(now_ms), now_ms)
        window.remember(str(now_ms), now_ms, now_ms)

    assert len(window) == 100
    assert len(window._order) == 100
