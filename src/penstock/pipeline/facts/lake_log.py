"""Which batches a lake holds: one small file for each, written when the batch's data is complete.

A reader takes the data of committed batches and of no others, so it sees a batch as a whole or not at all.
A compaction is a batch too, and names those whose place it takes in its day: with its one file it comes and they go.
"""

import msgspec

from penstock.events.statistics.minutes import BEFORE_ALL, Place
from penstock.pipeline.facts.hadoop_files import HadoopFiles

LOG = "_log"


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that is in the lake: its days with their rows, and its last attempt."""

    batch: str
    upto: Place
    days: dict[str, int] = {}
    replaces: tuple[str, ...] = ()
    """The batches whose rows of this one's day are in it."""


class Contents(msgspec.Struct, frozen=True):
    """All commits, in the order of their names."""

    commits: tuple[Commit, ...]

    @property
    def upto(self) -> Place:
        """The last attempt in the lake."""
        return max((commit.upto for commit in self.commits), default=BEFORE_ALL)

    @property
    def replaced(self) -> frozenset[tuple[str, str]]:
        """Days and batches whose data a compaction has taken over."""
        return frozenset((day, old) for commit in self.commits for day in commit.days for old in commit.replaces)

    def live(self) -> dict[str, dict[str, int]]:
        """By day the batches to read, with their rows."""
        gone = self.replaced
        days: dict[str, dict[str, int]] = {}
        for commit in self.commits:
            for day, rows in commit.days.items():
                if (day, commit.batch) not in gone:
                    days.setdefault(day, {})[commit.batch] = rows
        return dict(sorted(days.items()))


_decode = msgspec.json.Decoder(Commit).decode


def read_log(files: HadoopFiles) -> Contents:
    """What the lake holds now."""
    names = [name for name in files.names(LOG) if name.endswith(".json") and not name.startswith(".")]
    return Contents(tuple(_decode(files.read(f"{LOG}/{name}")) for name in names))


def write_commit(files: HadoopFiles, commit: Commit) -> None:
    """From now on the batch is in the lake."""
    files.write(f"{LOG}/{commit.batch}.json", msgspec.json.encode(commit))


def drop_commit(files: HadoopFiles, batch: str) -> None:
    """Forget a batch whose data is gone."""
    files.delete(f"{LOG}/{batch}.json")
