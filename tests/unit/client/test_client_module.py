"""What the client's values and addresses are held against."""

import subprocess
import sys

import msgspec
import pytest

from penstock import client
from penstock.client import calls, types
from penstock.client.calls import JobOptions, JobSearch, SubscriptionChanges, SubscriptionSettings
from penstock.client.endpoint import Endpoint
from penstock.domain.errors import InvalidArgument


def test_every_option_of_a_subscription_can_be_given() -> None:
    required = {"name", "pattern", "target"}
    assert set(SubscriptionSettings.__annotations__) | required == set(types.NewSubscription.__struct_fields__)


def test_everything_that_may_change_about_a_subscription_can_be_given() -> None:
    assert set(SubscriptionChanges.__annotations__) == set(types.SubscriptionChange.__struct_fields__)


def test_every_option_of_a_job_can_be_given() -> None:
    # One payload, which is sent as JSON or in base64.
    assert set(JobOptions.__annotations__) | {"payload_base64"} == set(types.NewJobBody.__struct_fields__)


def test_every_filter_of_jobs_can_be_given() -> None:
    of_pages = {"limit", "cursor"}
    assert set(JobSearch.__annotations__) | of_pages == set(types.JobQuery.__struct_fields__)


def test_a_query_says_what_is_given_and_nothing_else() -> None:
    assert calls.jobs({}, None).path == "/api/v1/jobs"
    asked = calls.jobs({"status": client.JobStatus.ERROR, "key": "a b", "archived": True}, "next", 5)
    assert asked.path == "/api/v1/jobs?status=ERROR&key=a+b&archived=true&limit=5&cursor=next"


@pytest.mark.parametrize(
    ("payload", "sent"),
    [({"total": 7}, {"payload": {"total": 7}}), (b"PNG", {"payloadBase64": "UE5H"}), (None, {})],
    ids=["JSON", "bytes", "none"],
)
def test_a_payload_is_sent_as_what_it_is(payload: object, sent: dict[str, object]) -> None:
    call = calls.create_job({"target": "https://a.example", "payload": payload})
    assert msgspec.json.decode(call.body or b"") == {"target": "https://a.example", **sent}


def test_a_job_is_sent_again_only_if_that_cannot_create_two() -> None:
    assert not calls.create_job({"target": "https://a.example"}).repeatable
    assert calls.create_job({"target": "https://a.example", "idempotency_key": "1"}).repeatable


def test_what_is_not_changed_is_not_sent() -> None:
    assert calls.update_subscription("1", {"dead_letter_topic": None}).body == b'{"deadLetterTopic":null}'


def test_the_client_imports_no_server_no_spark_and_no_database() -> None:
    program = "import sys, penstock.client; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    ours = {name.split(".")[1] for name in found if name.startswith("penstock.")}
    assert ours <= {"client", "domain", "edge"}
    assert not {"psycopg", "pyspark", "pyarrow", "grpc", "uvloop", "typer", "sqlite3"} & set(found)


def test_the_package_exports_what_it_names() -> None:
    assert sorted(client.__all__) == client.__all__
    assert all(hasattr(client, name) for name in client.__all__)


def test_both_clients_do_the_same_things() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(client.Penstock) == public(client.AsyncPenstock)


@pytest.mark.parametrize(
    ("url", "host", "port", "secure", "base_path"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1", 8080, False, ""),
        ("http://[::1]:8080/", "::1", 8080, False, ""),
        ("https://events.example/penstock/", "events.example", 443, True, "/penstock"),
        ("http://events.example", "events.example", 80, False, ""),
    ],
)
def test_an_address_is_read_from_a_url(url: str, host: str, port: int, secure: bool, base_path: str) -> None:
    endpoint = Endpoint.parse(url, None)
    assert (endpoint.host, endpoint.port, endpoint.secure, endpoint.base_path) == (host, port, secure, base_path)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://a.example", "http://", "http://a:99999", "http://a:0", "http://[::1"]
)
def test_what_is_no_address_is_told(url: str) -> None:
    with pytest.raises(InvalidArgument, match="URL"):
        Endpoint.parse(url, None)


def test_secrets_stay_out_of_texts() -> None:
    assert "s3cret" not in repr(Endpoint.parse("http://127.0.0.1", "s3cret"))
    with pytest.raises(InvalidArgument, match="give the token") as refused:
        Endpoint.parse("http://me:s3cret@127.0.0.1", None)
    assert "s3cret" not in refused.value.message


def test_a_program_without_asyncio_does_not_load_it() -> None:
    program = "import sys, penstock.client as c; print('asyncio' in sys.modules, c.AsyncPenstock.__name__)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["False", "AsyncPenstock"]
