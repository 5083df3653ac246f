"""Which targets name a topic or a queue."""

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.events.process import check_message_target


@pytest.mark.parametrize(
    "target",
    [
        "topic:orders",
        "topic:projects/shop/topics/orders",
        "topic:a.b~c+d%e-1",
        "sqs:orders",
        "sqs:orders.fifo",
        "sqs:" + "q" * 80,
    ],
)
def test_a_topic_or_a_queue_is_a_target(target: str) -> None:
    check_message_target(target)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("topic:", "names no topic"),
        ("topic:no", "names no topic"),
        ("topic:1st", "names no topic"),
        ("topic:projects/shop/orders", "names no topic"),
        ("topic:a b c", "names no topic"),
        ("sqs:", "names no queue"),
        ("sqs:a/b", "names no queue"),
        ("sqs:http://127.0.0.1:9324/0/a", "names no queue"),
        ("sqs:orders.fifo.fifo", "names no queue"),
        ("sqs:" + "q" * 81, "names no queue"),
        ("sqs:dispatch.fifo", "between Penstock's dispatcher and its routers"),
        ("sqs:dispatch-billing.fifo", "between Penstock's dispatcher and its routers"),
    ],
)
def test_what_names_none_is_refused(target: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        check_message_target(target)
