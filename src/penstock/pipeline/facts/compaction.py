"""A day's many small files become few. Killed at any point, every fact is read once.

1. The facts of the day's batches are written once more, under the name of the compaction: nobody reads them yet.
2. The compaction's commit says which batches it takes the place of: with it readers change over.
3. What was replaced is deleted by the next compaction, not by this one: somebody may be reading it.
"""

from pyspark.sql import SparkSession

from penstock.domain.errors import FailedPrecondition
from penstock.pipeline.facts.hadoop_files import HadoopFiles
from penstock.pipeline.facts.lake import Compacted
from penstock.pipeline.facts.lake_files import directory_of, read, write
from penstock.pipeline.facts.lake_log import Commit, Contents, drop_commit, read_log, write_commit

ROWS_PER_FILE = 1_000_000
_PREFIX = "compacted-"


def compact(spark: SparkSession, path: str, files: HadoopFiles, day: str) -> Compacted | None:
    """Take the place of a day's small batches; None if there is at most one."""
    before = read_log(files)
    batches = {name: rows for name, rows in before.live().get(day, {}).items() if rows < ROWS_PER_FILE}
    if len(batches) < 2:
        return None
    rows = sum(batches.values())
    name = _next_name(before, day)
    facts = read(spark, path, [(day, batch) for batch in batches])
    # By group, so that the facts of one are side by side: they compress well, and a search skips the other files.
    write(facts.repartitionByRange(-(-rows // ROWS_PER_FILE), "group_key", "at_ms"), path, name)
    written = read(spark, path, [(day, name)]).count()
    if written != rows:
        raise FailedPrecondition(
            f"{written} of the {rows} facts of {day} were written, so that nothing was replaced: "
            "the lake's files do not hold what its log says; restore them, or delete the day and its log"
        )
    _still_live(files, day, set(batches))
    replaced = [commit for commit in before.commits if commit.batch in batches]
    commit = Commit(
        batch=name,
        upto=max(commit.upto for commit in replaced),
        days={day: rows},
        replaces=_heirs(before, replaced),
    )
    write_commit(files, commit)
    return Compacted(day, rows, len(batches))


def sweep(files: HadoopFiles) -> None:
    """Delete the data that compactions have replaced, then the commits that have no data left."""
    contents = read_log(files)
    gone = contents.replaced
    for day, batch in sorted(gone):
        files.delete(directory_of(day, batch))
    for commit in contents.commits:
        # One without data still tells how far the lake goes, unless another does.
        if all((day, commit.batch) in gone for day in commit.days) and (commit.days or commit.upto < contents.upto):
            drop_commit(files, commit.batch)


def _heirs(contents: Contents, replaced: list[Commit]) -> tuple[str, ...]:
    """Those replaced, and those that they had replaced: a batch of two days outlives the compaction of one."""
    known = {commit.batch for commit in contents.commits}
    inherited = {name for commit in replaced for name in commit.replaces} & known
    return tuple(sorted(inherited | {commit.batch for commit in replaced}))


def _next_name(contents: Contents, day: str) -> str:
    known = [commit.batch for commit in contents.commits if commit.batch.startswith(f"{_PREFIX}{day}-")]
    return f"{_PREFIX}{day}-{max((int(name.rpartition('-')[2]) for name in known), default=0) + 1:06}"


def _still_live(files: HadoopFiles, day: str, batches: set[str]) -> None:
    if not batches <= read_log(files).live().get(day, {}).keys():
        raise FailedPrecondition(f"another compaction of {day} has ended meanwhile: run one at a time")
