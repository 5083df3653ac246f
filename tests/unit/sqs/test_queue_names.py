"""Queue names, ARNs and queue URLs."""

import pytest

from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.names import Scope, arn, check_name, is_name, parse_arn, parts_of_url, queue_url, scope_and_name

ACCOUNT = "000000000000"
HOME = Scope("us-east-1", ACCOUNT)


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
    scope = Scope("eu-west-1", ACCOUNT)
    assert arn(scope, "orders.fifo") == "arn:aws:sqs:eu-west-1:000000000000:orders.fifo"
    assert parse_arn(arn(scope, "orders.fifo")) == (scope, "orders.fifo")
    assert parse_arn("arn:aws-cn:sqs:cn-north-1:123456789012:orders") == (Scope("cn-north-1", "123456789012"), "orders")


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
    base, elsewhere = "http://localhost:9324/", Scope("eu-west-1", ACCOUNT)
    assert queue_url(base, HOME, "orders", HOME) == "http://localhost:9324/000000000000/orders"
    far = queue_url(base, elsewhere, "orders", HOME)
    assert far == "http://localhost:9324/queue/eu-west-1/000000000000/orders"
    assert parts_of_url(far) == ("eu-west-1", ACCOUNT, "orders")


@pytest.mark.parametrize("scope", [HOME, Scope("eu-west-1", ACCOUNT), Scope("us-east-1", "123456789012")])
def test_a_key_says_where_the_queue_is(scope: Scope) -> None:
    key = scope.key_of("orders.fifo", HOME)
    assert scope_and_name(key, HOME) == (scope, "orders.fifo")
    assert (key == "orders.fifo") == (scope == HOME)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9324/000000000000/orders.fifo",
        "https://sqs.us-east-1.amazonaws.com/000000000000/orders.fifo",
        "https://queue.amazonaws.com/000000000000/orders.fifo",
        "http://other-host/000000000000/orders.fifo",
        "https://sqs.us-east-1.amazonaws.com/000000000000/orders.fifo/",
        "https://proxy.example/sqs/000000000000/orders.fifo",
        "/000000000000/orders.fifo",
        "000000000000/orders.fifo",
        "orders.fifo",
    ],
)
def test_the_name_in_a_queue_url(url: str) -> None:
    region, account, name = parts_of_url(url)
    assert (region, name) == (None, "orders.fifo")
    assert account == (ACCOUNT if "/" in url else None)


@pytest.mark.parametrize(
    "url",
    [
        "http://whatever-incorrect-queue-address",
        "http://localhost:9324/",
        "http://localhost:9324/orders",
        "http://localhost:9324/000000000000/",
        "http://localhost:9324/000000000000//",
        "http://localhost:9324/000000000000/orders//",
        "/",
        "http://localhost:9324/000000000000/a%20b",
        "http://localhost:9324/000000000000/orders?x=1",
        "/orders",
        "not a name",
    ],
)
def test_of_garbage_no_queue_exists(url: str) -> None:
    with pytest.raises(SqsError) as caught:
        parts_of_url(url)

    assert caught.value.kind is ErrorKind.QUEUE_DOES_NOT_EXIST


def test_no_url_names_no_queue() -> None:
    with pytest.raises(SqsError) as caught:
        parts_of_url("")

    assert caught.value.kind is ErrorKind.QUEUE_DOES_NOT_EXIST
