"""What the client's values and addresses are held against."""

import subprocess
import sys

import msgspec
import pytest

from penstock import client
from penstock.client import answers
from penstock.client.calls import JobFilter, SubscriptionOptions
from penstock.client.endpoint import Endpoint
from penstock.domain.errors import InvalidArgument
from penstock.events.accept import routes
from penstock.events.api import job_types, jobs, pools, subscription_types, subscriptions
from penstock.events.api import jobs as job_decisions


@pytest.mark.parametrize(
    ("ours", "served"),
    [
        (answers.Receipt, routes.EventReceipt),
        (answers.Receipts, routes.EventReceipts),
        (answers.Subscription, subscription_types.SubscriptionView),
        (answers.NewSubscription, subscriptions.SubscriptionMade),
        (answers.Subscriptions, subscriptions.SubscriptionList),
        (answers.RemovedSubscription, subscriptions.SubscriptionRemoved),
        (answers.Job, job_types.JobView),
        (answers.JobPage, jobs.JobList),
        (answers.Attempt, job_types.AttemptView),
        (answers.Attempts, jobs.AttemptList),
        (answers.DecidedJobs, job_decisions.Decided),
        (answers.Pool, pools.PoolView),
        (answers.Pools, pools.PoolList),
    ],
)
def test_every_answer_has_the_members_that_the_server_sends(
    ours: type[msgspec.Struct], served: type[msgspec.Struct]
) -> None:
    assert ours.__struct_encode_fields__ == served.__struct_encode_fields__


def test_every_option_of_a_subscription_can_be_given() -> None:
    required = {"name", "pattern", "target"}
    assert set(SubscriptionOptions.__annotations__) | required == set(
        subscription_types.NewSubscription.__struct_fields__
    )


def test_every_filter_of_jobs_can_be_given() -> None:
    of_pages = {"limit", "cursor"}
    assert set(JobFilter.__annotations__) | of_pages == set(jobs.JobQuery.__struct_fields__)


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
