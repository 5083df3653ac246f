"""Both memories of the receiver kit remember what was processed, and the place of each key."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client.receiver import InMemory, KeyArrival, SqliteMemory, memory

Open = Callable[[], InMemory | SqliteMemory]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens the memory of one receiver."""
    if request.param == "sqlite":
        return lambda: SqliteMemory(tmp_path / "receiver.db")
    kept = InMemory()
    return lambda: kept


def test_an_id_is_new_until_it_was_processed(opened: Open) -> None:
    store = opened()
    with pytest.raises(RuntimeError), store.once("a"):
        raise RuntimeError("the handler failed")
    with store.once("a") as is_new:
        assert is_new
    with opened().once("a") as is_new:
        assert not is_new
    with store.once("b") as is_new:
        assert is_new


def test_keys_of_subscriptions_have_places_of_their_own(opened: Open) -> None:
    store = opened()
    for subscription, key in (("s", "a"), ("s", "b"), ("t", "a")):
        assert store.step(subscription, key, 1).arrival is KeyArrival.NEXT
    step = opened().step("s", "a", 4)
    assert (step.arrival, list(step.missing)) == (KeyArrival.AFTER_GAP, [2, 3])
    assert store.step("s", "a", 3).arrival is KeyArrival.LATE


def test_threads_share_it(opened: Open) -> None:
    store = opened()
    store.step("s", "a", 1)
    with ThreadPoolExecutor(8) as threads:
        steps = list(threads.map(lambda number: store.step("s", "a", number), range(2, 42)))
    assert len(steps) == 40
    last = store.step("s", "a", 42)
    assert (last.arrival, last.place.missing) == (KeyArrival.NEXT, ())


def test_sqlite_forgets_ids_after_a_while(tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "receiver.db", keep_days=-1)
    with store.once("a"):
        pass
    with store.once("a") as is_new:
        assert is_new


def test_memory_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_REMEMBERED", 2)
    store = InMemory()
    for webhook_id in ("a", "b", "c"):
        with store.once(webhook_id) as is_new:
            assert is_new
    assert [_is_new(store, each) for each in ("c", "a")] == [False, True]


def _is_new(store: InMemory, webhook_id: str) -> bool:
    with store.once(webhook_id) as is_new:
        return is_new
