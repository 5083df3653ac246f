"""Jobs of a key, such as `order-17`, whichever subscription they are owed to: each has a lane of its own for a key.

No index has the keys alone, as each is written with every move of a job. So every subscription is asked for the newest
job of its lane, and then only those lanes are read that the page may have jobs of.
"""

from heapq import merge
from itertools import islice

from penstock.domain.job import DispatchJob
from penstock.jobs.queries import JOB_COLUMNS
from penstock.jobs.rows import job_of
from penstock.jobs.transaction import Transaction

# A page shows what became of jobs, not what they carry.
_COLUMNS = ", ".join("NULL AS payload" if name == "payload" else name for name in JOB_COLUMNS)


def jobs_of_key(
    tx: Transaction, key: str, conditions: list[str], values: dict[str, object], most: int
) -> list[DispatchJob]:
    """The newest jobs of a key that fit the conditions, the newest first."""
    found: list[DispatchJob] = []
    for newest_id, group_key in _lanes(tx, key, conditions, values)[:most]:
        if len(found) == most and found[-1].id > newest_id:
            # Nothing of this lane comes before what was found, nor of those after it.
            break
        of_lane = _jobs_of_lane(tx, group_key, conditions, values, most)
        found = list(islice(merge(found, of_lane, key=lambda job: job.id, reverse=True), most))
    return found


def _lanes(tx: Transaction, key: str, conditions: list[str], values: dict[str, object]) -> list[tuple[str, str]]:
    """The newest fitting job of each lane that has one, the newest first, and the lane's group key."""
    fitting = " AND ".join(["group_key = lane.group_key", *conditions])
    text = (
        f"SELECT (SELECT id FROM jobs WHERE {fitting} ORDER BY id DESC LIMIT 1), lane.group_key "
        "FROM (SELECT id || :end_of_key AS group_key FROM subscriptions) AS lane"
    )
    rows = tx.select(text, {**values, "end_of_key": f":{key}"})
    return sorted(((newest_id, group_key) for newest_id, group_key in rows if newest_id is not None), reverse=True)


def _jobs_of_lane(
    tx: Transaction, group_key: str, conditions: list[str], values: dict[str, object], most: int
) -> list[DispatchJob]:
    fitting = " AND ".join(["group_key = :lane", *conditions])
    text = f"SELECT {_COLUMNS} FROM jobs WHERE {fitting} ORDER BY id DESC LIMIT :most"
    return [job_of(row) for row in tx.select(text, {**values, "lane": group_key, "most": most})]
