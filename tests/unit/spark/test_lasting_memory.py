"""A worker's garbage collections do not look at what it keeps for good."""

import gc
from collections.abc import Iterator

import pytest

from penstock.spark.workers import freeze_long_lived_objects


@pytest.fixture(autouse=True)
def own_collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    freeze_long_lived_objects.cache_clear()


def is_looked_at(lasting: object) -> bool:
    return any(each is lasting for each in gc.get_objects())


def test_what_is_there_at_the_end_of_the_first_task_is_not_looked_at_again() -> None:
    imported = ["a", ["module"]]
    assert is_looked_at(imported)

    freeze_long_lived_objects("one")

    assert not is_looked_at(imported)


def test_what_later_tasks_of_a_kind_leave_is_collected_as_before() -> None:
    freeze_long_lived_objects("one")
    left = ["by a", ["task"]]

    freeze_long_lived_objects("one")

    assert is_looked_at(left)


def test_another_kind_of_work_has_more_to_keep() -> None:
    freeze_long_lived_objects("one")
    imported = ["another", ["module"]]

    freeze_long_lived_objects("another")

    assert not is_looked_at(imported)
