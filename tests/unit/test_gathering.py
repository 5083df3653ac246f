"""How long a commit waits for more callers to share it."""

from penstock.engine.flush import _ENOUGH_CALLERS, _QUIET_ROUNDS, Gathering


def crowded() -> Gathering:
    """One whose last commit had several callers."""
    gathering = Gathering()
    assert gathering.is_complete(2)
    return gathering


def test_a_caller_who_was_alone_is_not_kept_waiting() -> None:
    gathering = Gathering()
    for _ in range(3):
        assert gathering.is_complete(1)


def test_waits_while_callers_come() -> None:
    gathering = crowded()
    for callers in range(1, 50):
        assert not gathering.is_complete(callers)
        for _ in range(_QUIET_ROUNDS - 1):
            assert not gathering.is_complete(callers)
    assert gathering.is_complete(49), "nobody came for some rounds"


def test_callers_without_end_do_not_hold_a_commit_up() -> None:
    gathering = crowded()
    rounds = next(rounds for rounds in range(1, 1000) if gathering.is_complete(rounds))
    assert rounds == _ENOUGH_CALLERS


def test_a_crowd_that_went_away_is_waited_for_once() -> None:
    gathering = crowded()
    waits = [gathering.is_complete(1) for _ in range(_QUIET_ROUNDS + 1)]
    assert waits == [False] * _QUIET_ROUNDS + [True]
    assert gathering.is_complete(1)
