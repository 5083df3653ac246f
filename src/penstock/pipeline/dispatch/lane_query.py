"""The SELECT by which a task of Spark's reads lanes from PostgreSQL: the first jobs of each, and its first blocker.

The blocked are told from the free by the plan, not here; only how many jobs of a lane are read is limited, per mode,
so that blocked jobs never hide others. Lanes come by their turns, which costs nothing: that is the order in which the
index has them. Both kinds of lanes are put in order by themselves, too, or else PostgreSQL reads the jobs of all lanes,
sorts them, and throws most of them away. So the rows of a lane stand together. Of the last lane that is read rows may
be missing; then there is one more than was asked for.
"""

from penstock.jobs.lane_claiming import AwakeRange
from penstock.jobs.queries import Dialect, translated
from penstock.jobs.stored_state import StoredMode
from penstock.pipeline.dispatch.round_call import RoundCall
from penstock.pipeline.sources.literal import literal

_LANE = """
    SELECT group_key, ordered, turn,
        EXISTS (SELECT 1 FROM §subscriptions AS s WHERE s.id = lanes.subscription_id AND s.paused) AS paused
    FROM §lanes AS lanes WHERE turn BETWEEN §first AND §last AND
"""
_JOBS = """
    (
        SELECT id, mode, sequence, created_at_ms, due_at_ms, expires_at_ms, pool, publish_round, updated_at_ms
        FROM §jobs AS jobs
        WHERE state = {READY} AND jobs.group_key = lane.group_key AND jobs.mode = §mode AND §kind
          AND (expires_at_ms IS NULL OR expires_at_ms > §now)
        ORDER BY sequence, created_at_ms, id LIMIT §share
    )
"""
_QUERY = f"""
SELECT lane.group_key, lane.ordered, lane.turn, lane.paused, false AS in_flight,
    blocker.sequence AS blocker_sequence, blocker.created_at_ms AS blocker_created_at_ms, blocker.id AS blocker_id,
    job.id, job.mode, job.sequence, job.created_at_ms, job.due_at_ms, job.expires_at_ms, job.pool, job.publish_round,
    job.updated_at_ms
FROM (
    ({_LANE} awake ORDER BY turn)
    UNION ALL
    ({_LANE} claimed_until_ms IS NOT NULL AND claimed_by = §owner ORDER BY turn)
) AS lane
LEFT JOIN LATERAL (
    SELECT sequence, created_at_ms, id FROM §jobs AS jobs
    WHERE (state = {{ERROR}} OR (state = {{WAITING}} AND delivery_count > 0 AND mode > 0))
      AND jobs.group_key = lane.group_key
    ORDER BY sequence, created_at_ms, id LIMIT 1
) AS blocker ON lane.ordered
LEFT JOIN LATERAL (§runs) AS job ON true
ORDER BY lane.turn LIMIT §rows
"""
_KINDS = {
    StoredMode.BLOCK_ON_ERROR: "lane.ordered",
    StoredMode.NEXT_ON_ERROR: "lane.ordered",
    StoredMode.IMMEDIATE: "NOT lane.ordered",
}


def lane_query(prefix: str, span: AwakeRange, call: RoundCall) -> str:
    """What the first lanes of a range may give; `prefix` names the schema, with its dot."""
    runs = " UNION ALL ".join(
        _JOBS.replace("§mode", str(int(mode))).replace("§kind", kind) for mode, kind in _KINDS.items()
    )
    words = {
        "§runs": runs,
        "§first": str(span.first_turn),
        "§last": str(span.last_turn),
        "§share": str(call.share),
        "§rows": str(call.rows + 1),
        "§now": str(call.now_ms),
        "§subscriptions": f"{prefix}subscriptions",
        "§lanes": f"{prefix}lanes",
        "§jobs": f"{prefix}jobs",
    }
    text = _QUERY
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    # Last, and after what looks for colons and braces: it is the only text that is not ours.
    return translated(text, Dialect.POSTGRES).replace("§owner", literal(call.owner.name, Dialect.POSTGRES))
