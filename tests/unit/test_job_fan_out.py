"""Which jobs an event causes."""

from itertools import count

from penstock.core.event_filter import Condition, EventFilter
from penstock.core.pointer import DispatchMode
from penstock.jobs.fan_out import FanOut
from penstock.jobs.model_event import Event
from penstock.jobs.model_subscription import Subscription

EVENT = Event(id="e1", source="shop", type="orders:eu:created", received_ms=5, group="17", attributes={"tier": "gold"})


def subscription(name: str, pattern: str, **fields: object) -> Subscription:
    return Subscription(id=name, name=name, pattern=pattern, target=f"https://{name}.example", **fields)  # type: ignore[arg-type]


def test_an_event_causes_one_job_for_each_subscription_that_wants_it() -> None:
    silver = EventFilter((Condition("tier", values=("silver",)),))
    fan_out = FanOut(
        [
            subscription("all", "**"),
            subscription("created", "orders:*:created"),
            subscription("refunds", "refunds:**"),
            subscription("silver", "orders:**", filter=silver),
            subscription("other tenant", "**", tenant="acme"),
        ]
    )
    ids = count(1)

    jobs = fan_out.jobs(EVENT, lambda: f"job {next(ids)}")

    assert sorted((job.subscription_id, job.idempotency_key) for job in jobs) == [
        ("all", "e1:all"),
        ("created", "e1:created"),
    ]
    assert [job.id for job in jobs] == ["job 1", "job 2"]


def test_a_job_takes_its_place_from_the_event_and_its_manners_from_the_subscription() -> None:
    wanting = subscription("billing", "**", mode=DispatchMode.NEXT_ON_ERROR, pool="SLOW")

    (job,) = FanOut([wanting]).jobs(EVENT, lambda: "job")

    assert (job.group_key, job.created_at_ms, job.event_id) == ("billing:17", 5, "e1")
    assert (job.mode, job.pool, job.target) == (DispatchMode.NEXT_ON_ERROR, "SLOW", "https://billing.example")
    assert job.payload is None


def test_what_a_subscription_looks_like_in_a_log_has_no_secret() -> None:
    assert "hush" not in repr(subscription("billing", "**", secrets=("hush",)))
