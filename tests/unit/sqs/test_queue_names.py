"""Queue names, ARNs and queue URLs."""

import pytest

from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.names import arn, check_name, is_name, name_of_url, parse_arn, queue_url

ACCOUNT = "000000000000"


@pytest.mark.parametrize("name", ["a", "Orders_2-x", "a" * 80])
def test_a_standard_queue_may_have_the_name(name: str) -> None:
    check_name(name, fifo=False)
    assert is_name(name)


@pytest.mark.parametrize("name", ["a.fifo", "a" * 75 + ".fifo"])
def test_a_fifo_queue_may_have_the_name(name: str) -> None:
    check_name(name, fifo=True)
    assert is_name(name)


@pytest.mark.parametrize(
    ("name", "fifo"),
    [
        ("a" * 81, False),
        ("a b", False),
        ("a.b", False),
        ("a/b", False),
        ("é", False),
        ("a\n", False),
        ("orders.fifo", False),
        ("orders", True),
        (".fifo", True),
        ("a" * 76 + ".fifo", True),
        ("a.b.fifo", True),
    ],
)
def test_other_names_are_refused(name: str, fifo: bool) -> None:
    with pytest.raises(SqsError) as caught:
        check_name(name, fifo=fifo)

    assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE
    assert "1 to 80 in length" in str(caught.value)


def test_an_empty_name_is_not_a_name() -> None:
    with pytest.raises(SqsError) as caught:
        check_name("", fifo=False)

    assert caught.value.kind is ErrorKind.INVALID_PARAMETER_VALUE


def test_an_arn_gives_its_name_back() -> None:
    assert arn("eu-west-1", ACCOUNT, "orders.fifo") == "arn:aws:sqs:eu-west-1:000000000000:orders.fifo"
    assert parse_arn(arn("eu-west-1", ACCOUNT, "orders.fifo")) == "orders.fifo"
    assert parse_arn("arn:aws-cn:sqs:cn-north-1:123456789012:orders") == "orders"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dummy",
        "orders",
        "arn:aws:sns:us-east-1:000000000000:orders",
        "arn:aws:sqs:us-east-1:000000000000:",
        "arn:aws:sqs:us-east-1:12:orders",
        "arn:aws:sqs:us-east-1:000000000000:or.ders",
        "arn:aws:sqs:us-east-1:000000000000:orders:more",
        "arn:aws:sqs:us-east-1:000000000000:orders\n",
    ],
)
def test_what_is_no_queue_arn(text: str) -> None:
    assert parse_arn(text) is None


def test_a_queue_url() -> None:
    assert queue_url("http://localhost:9324/", ACCOUNT, "orders") == "http://localhost:9324/000000000000/orders"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/000000000000/orders.fifo",
        "https://sqs.us-east-1.amazonaws.com/000000000000/orders.fifo",
        "https://queue.amazonaws.com/000000000000/orders.fifo",
        "http://other-host/000000000000/orders.fifo",
        "https://proxy.example/sqs/000000000000/orders.fifo",
        "/000000000000/orders.fifo",
        "000000000000/orders.fifo",
        "orders.fifo",
    ],
)
def test_the_name_in_a_queue_url(url: str) -> None:
    assert name_of_url(url, ACCOUNT) == "orders.fifo"
    assert name_of_url(url) == "orders.fifo"


@pytest.mark.parametrize(
    "url",
    [
        "http://whatever-incorrect-queue-address",
        "http://localhost:9324/",
        "http://localhost:9324/orders",
        "http://localhost:9324/000000000000/",
        "http://localhost:9324/000000000000/a%20b",
        "http://localhost:9324/000000000000/orders?x=1",
        "/orders",
        "not a name",
    ],
)
def test_of_garbage_no_queue_exists(url: str) -> None:
    for account in (ACCOUNT, None):
        with pytest.raises(SqsError) as caught:
            name_of_url(url, account)

        assert caught.value.kind is ErrorKind.QUEUE_DOES_NOT_EXIST


def test_of_another_account_no_queue_exists() -> None:
    with pytest.raises(SqsError) as caught:
        name_of_url("http://localhost:9324/123456789012/orders", ACCOUNT)

    assert caught.value.kind is ErrorKind.QUEUE_DOES_NOT_EXIST


def test_no_url_names_no_queue() -> None:
    with pytest.raises(SqsError) as caught:
        name_of_url("", ACCOUNT)

    assert caught.value.kind is ErrorKind.QUEUE_DOES_NOT_EXIST
