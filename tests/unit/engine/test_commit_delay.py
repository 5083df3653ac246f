"""How long a commit waits for more callers to share it."""

from penstock.engine.group_commit import _ENOUGH_CALLERS, _QUIET_ITERATIONS, CommitDelay


def crowded() -> CommitDelay:
    """One whose last commit had several callers."""
    delay = CommitDelay()
    assert delay.is_complete(2)
    return delay


def test_a_caller_who_was_alone_is_not_kept_waiting() -> None:
    delay = CommitDelay()
    for _ in range(3):
        assert delay.is_complete(1)


def test_waits_while_callers_come() -> None:
    delay = crowded()
    for callers in range(1, 50):
        assert not delay.is_complete(callers)
        for _ in range(_QUIET_ITERATIONS - 1):
            assert not delay.is_complete(callers)
    assert delay.is_complete(49), "nobody came for some rounds"


def test_callers_without_end_do_not_hold_a_commit_up() -> None:
    delay = crowded()
    rounds = next(rounds for rounds in range(1, 1000) if delay.is_complete(rounds))
    assert rounds == _ENOUGH_CALLERS


def test_a_crowd_that_went_away_is_waited_for_once() -> None:
    delay = crowded()
    waits = [delay.is_complete(1) for _ in range(_QUIET_ITERATIONS + 1)]
    assert waits == [False] * _QUIET_ITERATIONS + [True]
    assert delay.is_complete(1)
