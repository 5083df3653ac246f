"""Deferred deletes: what is remembered, and for how long."""

from penstock.queues.sqs.source import DeferredDeletes

DAY_MS = 24 * 3600 * 1000


def test_a_message_that_is_done_is_due_for_deletion_until_it_is_deleted() -> None:
    deferred = DeferredDeletes()
    deferred.remember("m", 0)
    assert deferred.is_due("m", 1)
    assert not deferred.is_due("other", 1)
    deferred.deleted("m")
    assert not deferred.is_due("m", 1)
    deferred.deleted("m")


def test_it_is_forgotten_when_the_queue_would_have_dropped_it() -> None:
    deferred = DeferredDeletes(retention_s=60)
    deferred.remember("m", 0)
    assert deferred.is_due("m", 59_999)
    assert not deferred.is_due("m", 60_000)


def test_nothing_is_remembered_for_more_than_four_days() -> None:
    deferred = DeferredDeletes(retention_s=14 * 24 * 3600)
    deferred.remember("m", 0)
    assert deferred.is_due("m", 4 * DAY_MS - 1)
    assert not deferred.is_due("m", 4 * DAY_MS)


def test_what_is_past_its_time_makes_room() -> None:
    deferred = DeferredDeletes(retention_s=60)
    for number in range(100):
        deferred.remember(str(number), number * 60_000)
    assert len(deferred) == 1


def test_the_oldest_go_when_there_are_too_many() -> None:
    deferred = DeferredDeletes(most=2)
    for name in ("a", "b", "a", "c"):
        deferred.remember(name, 0)
    assert [deferred.is_due(name, 0) for name in "abc"] == [True, False, True]
