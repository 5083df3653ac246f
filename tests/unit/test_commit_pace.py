from penstock.queue.pace import CommitPace


def test_quick_commits_of_a_local_disk_stay_on_the_loop() -> None:
    pace = CommitPace(local=True)
    for _ in range(100):
        pace.took(0.001)
        assert pace.inline


def test_one_slow_commit_among_quick_ones_changes_nothing() -> None:
    pace = CommitPace(local=True)
    for _ in range(50):
        pace.took(0.0005)
    pace.took(0.01)
    assert pace.inline


def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again() -> None:
    pace = CommitPace(local=True)
    for _ in range(10):
        pace.took(0.02)
    assert not pace.inline
    for _ in range(20):
        pace.took(0.002)
    assert not pace.inline, "neither slow nor quick: it stays where it is"
    for _ in range(20):
        pace.took(0.0005)
    assert pace.inline


def test_a_database_server_is_always_left_to_the_thread() -> None:
    pace = CommitPace(local=False)
    for _ in range(20):
        pace.took(0.0001)
    assert not pace.inline
