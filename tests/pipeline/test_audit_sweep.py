"""The sweep of a group without Spark: it is exact."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.order import Position
from penstock.history.audit.order import AuditedDelivery, GroupSweep, Hold

MOMENT = st.integers(0, 12)
POSITION = st.builds(Position, st.integers(1, 2), MOMENT, st.sampled_from("abcd"))
UNTIL = st.none() | MOMENT
HOLDS = st.lists(st.builds(Hold, POSITION, st.just("PENDING"), MOMENT, UNTIL, UNTIL), max_size=8)
DELIVERIES = st.lists(st.builds(AuditedDelivery, POSITION, MOMENT, st.booleans()), max_size=8)


def _overtaken(delivery: AuditedDelivery, holds: Sequence[Hold], tolerance_ms: int) -> Position | None:
    """By looking at every hold."""
    holding = [
        hold.position
        for hold in holds
        if hold.position < delivery.position
        and hold.from_ms + tolerance_ms < delivery.at_ms
        and (until := hold.strict_until_ms if delivery.is_strict else hold.next_until_ms) is not None
        and until > delivery.at_ms + tolerance_ms
    ]
    return min(holding, default=None)


@given(holds=HOLDS, deliveries=DELIVERIES, tolerance_ms=st.integers(0, 2))
def test_a_sweep_finds_the_first_job_that_was_overtaken(
    holds: list[Hold], deliveries: list[AuditedDelivery], tolerance_ms: int
) -> None:
    sweep = GroupSweep(tolerance_ms)
    steps: list[tuple[int, int, Hold | AuditedDelivery]] = [(hold.from_ms + tolerance_ms, 1, hold) for hold in holds]
    steps += [(delivery.at_ms, 0, delivery) for delivery in deliveries]
    for _, _, step in sorted(steps, key=lambda step: step[:2]):
        if isinstance(step, Hold):
            sweep.begin_hold(step)
            continue
        found = sweep.overtaken(step)
        assert (None if found is None else found.position) == _overtaken(step, holds, tolerance_ms)
