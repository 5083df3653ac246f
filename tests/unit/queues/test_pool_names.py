"""The queue of a pool, by the URI of the queue that all pools could share."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.queues import pool_queue, pool_queue_name, queue_uri

CODES = st.text(min_size=1, max_size=256)


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("http://127.0.0.1:9324/000000000000/dispatch.fifo", "http://127.0.0.1:9324/000000000000/dispatch-orders.fifo"),
        ("sqlite:///data/queue.db?queue=dispatch", "sqlite:///data/queue.db?queue=dispatch-orders"),
        ("stomp://u:p@host:61613/queue/dispatch", "stomp://u:p@host:61613/queue/dispatch-orders"),
        ("nats://host:4222/dispatch/router", "nats://host:4222/dispatch-orders/router"),
    ],
)
def test_a_pools_queue_is_beside_the_shared_one(uri: str, wanted: str) -> None:
    assert pool_queue(uri, "orders") == wanted
    assert queue_uri(wanted).shown


@given(one=CODES, other=CODES)
def test_no_two_pools_share_a_queue_and_names_are_allowed_in_sqs(one: str, other: str) -> None:
    names = pool_queue_name("dispatch.fifo", one), pool_queue_name("dispatch.fifo", other)

    assert (names[0] == names[1]) is (one == other)
    assert all(re.fullmatch(r"dispatch-[A-Za-z0-9_-]+\.fifo", name) and len(name) <= 80 for name in names)


def test_a_code_that_looks_like_a_shortened_one_is_shortened_itself() -> None:
    shortened = pool_queue_name("q", "a b").removeprefix("q-")

    assert pool_queue_name("q", shortened) != pool_queue_name("q", "a b")
