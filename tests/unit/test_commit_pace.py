from penstock.core.limits import MIB
from penstock.queue.pace import CommitPace

SMALL = 1000


def test_quick_commits_of_a_local_disk_stay_on_the_loop() -> None:
    pace = CommitPace(local=True)
    for _ in range(100):
        pace.took(0.001, SMALL)
        assert pace.inline


def test_one_slow_commit_among_quick_ones_changes_nothing() -> None:
    pace = CommitPace(local=True)
    for _ in range(50):
        pace.took(0.0005, SMALL)
    pace.took(0.01, SMALL)
    assert pace.inline


def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again() -> None:
    pace = CommitPace(local=True)
    for _ in range(10):
        pace.took(0.02, SMALL)
    assert not pace.inline
    for _ in range(20):
        pace.took(0.002, SMALL)
    assert not pace.inline, "neither slow nor quick: it stays where it is"
    for _ in range(20):
        pace.took(0.0005, SMALL)
    assert pace.inline


def test_a_database_server_is_always_left_to_the_thread() -> None:
    pace = CommitPace(local=False)
    for _ in range(20):
        pace.took(0.0001, SMALL)
    assert not pace.inline


def test_a_round_of_full_batches_is_not_large() -> None:
    assert CommitPace(local=True).on_loop(64 * 10 * 256)


def test_a_large_commit_is_left_to_the_thread_and_says_nothing_about_small_ones() -> None:
    pace = CommitPace(local=True)
    for _ in range(100):
        pace.took(1.0, MIB)
    assert not pace.on_loop(MIB)
    assert pace.on_loop(SMALL)
