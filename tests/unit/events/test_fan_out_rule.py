"""Which jobs an event causes."""

import pytest

from penstock.domain.event import StoredEvent
from penstock.domain.ids import check_job_id, job_id_for
from penstock.domain.matching import Condition, EventFilter
from penstock.domain.pointer import DispatchMode
from penstock.domain.subscription import Subscription
from penstock.events.fan_out.rule import FanOut

EVENT = StoredEvent(
    id="e1", source="shop", type="orders:eu:created", received_ms=5, group="17", attributes={"tier": "gold"}
)


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

    jobs = fan_out.jobs(EVENT)

    assert sorted((job.subscription_id, job.id) for job in jobs) == [("all", "e1-all"), ("created", "e1-created")]
    assert fan_out.jobs(EVENT) == jobs


def test_a_job_takes_its_place_from_the_event_and_its_manners_from_the_subscription() -> None:
    wanting = subscription("billing", "**", mode=DispatchMode.NEXT_ON_ERROR, pool="SLOW")

    (job,) = FanOut([wanting]).jobs(EVENT)

    assert (job.group_key, job.created_at_ms, job.event_id) == ("billing:17", 5, "e1")
    assert (job.mode, job.pool, job.target) == (DispatchMode.NEXT_ON_ERROR, "SLOW", "https://billing.example")
    assert job.payload is None


def test_what_a_subscription_looks_like_in_a_log_has_no_secret() -> None:
    assert "hush" not in repr(subscription("billing", "**", secrets=("hush",)))


EVENT_ID, SUBSCRIPTION_ID = "0HZXEQ5Y8JY5Z", "0HZXEQ5Y8JY60"


@pytest.mark.parametrize("text", [EVENT_ID, job_id_for(EVENT_ID, SUBSCRIPTION_ID)])
def test_both_kinds_of_job_ids_are_known(text: str) -> None:
    check_job_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "nobody",
        f"{EVENT_ID}-",
        f"-{EVENT_ID}",
        f"{EVENT_ID}:{SUBSCRIPTION_ID}",
        f"{EVENT_ID}--{SUBSCRIPTION_ID}",
        f"{EVENT_ID}-{SUBSCRIPTION_ID}-{SUBSCRIPTION_ID}",
        f"{EVENT_ID}-{SUBSCRIPTION_ID}\n",
        f"{EVENT_ID} -{SUBSCRIPTION_ID}",
    ],
)
def test_nothing_else_is_a_job_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"TSID|Crockford"):
        check_job_id(text)
