"""A disk is full from a write that failed for it until one succeeds, or there is more room than there was."""

import sqlite3
from pathlib import Path

import pytest

from penstock.domain.limits import MIB
from penstock.edge.disk_space import LEAST_FREE_BYTES, DiskSpace, free_bytes


class Disk:
    """A disk with as much room as the test says."""

    def __init__(self, free_mib: int | None) -> None:
        self.free_mib = free_mib
        self.asked = 0

    def free(self, _: Path) -> int:
        self.asked += 1
        if self.free_mib is None:
            raise OSError("the disk does not answer")
        return self.free_mib * MIB


@pytest.fixture
def full_error() -> sqlite3.Error:
    """What SQLite raises when it finds no space."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.Error) as raised:
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    return raised.value


def test_it_is_full_until_a_write_succeeds(full_error: sqlite3.Error) -> None:
    disk = Disk(0)
    disk_space = DiskSpace(Path("/data"), disk.free)
    assert (disk_space.problem(), disk.asked) == (None, 0), "a disk without a failed write is not asked"
    disk_space.write_failed(full_error)
    problem = disk_space.problem()
    assert problem is not None
    assert problem.startswith(
        "the disk of /data is full: 0 MiB are free; free up space there until 256 MiB are, or move"
    )
    disk_space.write_succeeded()
    assert disk_space.problem() is None


def test_it_is_full_until_there_is_room_again(full_error: sqlite3.Error) -> None:
    disk = Disk(3)
    disk_space = DiskSpace(Path("/data"), disk.free)
    disk_space.write_failed(full_error)
    disk.free_mib = LEAST_FREE_BYTES // MIB + 2
    assert disk_space.problem() is not None
    disk.free_mib += 1
    assert (disk_space.problem(), disk_space.is_exhausted) == (None, True)
    disk.free_mib = 3
    assert disk_space.problem() is not None, "no write has succeeded since"


def test_a_limit_that_is_not_the_disk_s_own_is_not_taken_for_room(full_error: sqlite3.Error) -> None:
    disk_space = DiskSpace(Path("/data"), Disk(100_000).free)
    disk_space.write_failed(full_error)
    assert disk_space.problem() is not None


def test_a_disk_that_does_not_answer_has_no_room(full_error: sqlite3.Error) -> None:
    disk = Disk(None)
    disk_space = DiskSpace(Path("/data"), disk.free)
    disk_space.write_failed(full_error)
    assert disk_space.problem() is not None
    disk.free_mib = 1000
    assert disk_space.problem() is None


def test_another_failure_is_not_for_lack_of_room() -> None:
    disk_space = DiskSpace(Path("/data"), Disk(0).free)
    for error in (sqlite3.OperationalError("locked"), None):
        disk_space.write_failed(error)
        assert (disk_space.problem(), disk_space.is_exhausted) == (None, False)


def test_a_real_disk_tells_how_much_is_free(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
