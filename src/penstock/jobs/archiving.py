"""Finished jobs leave the table of jobs for the archive, and events leave with the last job they caused."""

from penstock.domain.order import LaneKey
from penstock.jobs.stored_state import StoredState
from penstock.jobs.transaction import Transaction
from penstock.jobs.waking import wake_lanes


def archive_finished(tx: Transaction, before_ms: int, most: int) -> int:
    """Move jobs that were finished before to the archive, at most so many; how many."""
    rows = tx.all("archivable_jobs", before_ms=before_ms, most=most)
    if rows:
        ids = [row[0] for row in rows]
        tx.all("copy_to_archive", ids=ids)
        tx.all("drop_archived_from_jobs", ids=ids)
    errors = {LaneKey(group_key, True): sub for _, group_key, sub, state in rows if state == StoredState.ERROR}
    wake_lanes(tx, errors)
    return len(rows)


def forget_events(tx: Transaction, before_ms: int, most: int) -> int:
    """Delete events received before that no job needs any more, at most so many, and changes made before; how many."""
    tx.all("forget_changes", before_ms=before_ms)
    ids = [event_id for (event_id,) in tx.all("old_events", before_ms=before_ms, most=most)]
    if ids:
        tx.all("delete_events", ids=ids)
    return len(ids)
