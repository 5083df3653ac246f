"""Every request that the clients make, as a value: what is sent, what the answer is, whether it may be sent again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client import answers
from penstock.domain.errors import AlreadyExists, FailedPrecondition, PenstockError
from penstock.domain.job_state import JobStatus
from penstock.domain.matching import Condition
from penstock.domain.pointer import DispatchMode

A = TypeVar("A")

_EVENTS, _JOBS, _POOLS = "/api/v1/events", "/api/v1/jobs", "/api/v1/pools"
_SUBSCRIPTIONS = "/api/v1/subscriptions"


@dataclass(frozen=True)
class Call(Generic[A]):
    """A request. One that is `repeatable` does no more when it is done twice."""

    method: str
    path: str
    answer: type[A]
    body: bytes | None = None
    repeatable: bool = False
    conflict: type[PenstockError] = FailedPrecondition
    """What the status 409 means here."""


class SubscriptionOptions(TypedDict, total=False):
    """What may be said about a new subscription besides its name, pattern and target."""

    filter: Sequence[Condition]
    secret: str
    pool: str
    mode: DispatchMode
    retry_delays_s: Sequence[float]
    timeout_s: float
    headers: Mapping[str, str]
    dead_letter_topic: str
    tenant: str


class JobFilter(TypedDict, total=False):
    """Which jobs to list; archived ones are left out unless asked for."""

    status: JobStatus
    subscription_id: str
    group_key: str
    key: str
    created_from_ms: int
    created_to_ms: int
    event_id: str
    tenant: str
    type: str
    archived: bool


def publish(body: bytes) -> Call[answers.Receipts]:
    """Publish events; sent again it changes nothing, as each has its id."""
    return Call("POST", _EVENTS, answers.Receipts, body, repeatable=True)


def subscribe(name: str, pattern: str, target: str, options: SubscriptionOptions) -> Call[answers.NewSubscription]:
    """Make a subscription."""
    given = {_camel(option): value for option, value in options.items()}
    body = msgspec.json.encode({"name": name, "pattern": pattern, "target": target, **given})
    return Call("POST", _SUBSCRIPTIONS, answers.NewSubscription, body, conflict=AlreadyExists)


def subscriptions(cursor: str | None) -> Call[answers.Subscriptions]:
    """A page of subscriptions, from a cursor on."""
    return Call("GET", _SUBSCRIPTIONS + _query({}, cursor), answers.Subscriptions, repeatable=True)


def subscription(subscription_id: str) -> Call[answers.Subscription]:
    """One subscription."""
    return Call("GET", f"{_SUBSCRIPTIONS}/{_part(subscription_id)}", answers.Subscription, repeatable=True)


def pause(subscription_id: str) -> Call[answers.Subscription]:
    """Deliver nothing more for now."""
    return Call("POST", f"{_SUBSCRIPTIONS}/{_part(subscription_id)}/pause", answers.Subscription, repeatable=True)


def resume(subscription_id: str) -> Call[answers.Subscription]:
    """Deliver again."""
    return Call("POST", f"{_SUBSCRIPTIONS}/{_part(subscription_id)}/resume", answers.Subscription, repeatable=True)


def unsubscribe(subscription_id: str) -> Call[answers.RemovedSubscription]:
    """Remove a subscription."""
    return Call("DELETE", f"{_SUBSCRIPTIONS}/{_part(subscription_id)}", answers.RemovedSubscription)


def jobs(which: JobFilter, cursor: str | None) -> Call[answers.JobPage]:
    """A page of jobs, from a cursor on."""
    given = {_camel(name): str(value).lower() if value is True else value for name, value in which.items() if value}
    return Call("GET", _JOBS + _query(given, cursor), answers.JobPage, repeatable=True)


def job(job_id: str) -> Call[answers.Job]:
    """One job."""
    return Call("GET", f"{_JOBS}/{_part(job_id)}", answers.Job, repeatable=True)


def attempts(job_id: str, cursor: str | None) -> Call[answers.Attempts]:
    """A page of the deliveries of a job, from a cursor on."""
    path = f"{_JOBS}/{_part(job_id)}/attempts"
    return Call("GET", path + _query({}, cursor), answers.Attempts, repeatable=True)


def decide(verb: str, job_ids: Sequence[str]) -> Call[answers.DecidedJobs]:
    """Retry, cancel or ignore jobs: all of them or none."""
    return Call("POST", f"{_JOBS}/{verb}", answers.DecidedJobs, msgspec.json.encode({"ids": job_ids}))


def pools(cursor: str | None) -> Call[answers.Pools]:
    """A page of pools, from a cursor on."""
    return Call("GET", _POOLS + _query({}, cursor), answers.Pools, repeatable=True)


def put_pool(pool: answers.Pool) -> Call[answers.Pool]:
    """Make a pool, or change it."""
    body = {"concurrency": pool.concurrency, "rateLimitPerMinute": pool.rate_limit_per_minute}
    return Call("PUT", f"{_POOLS}/{_part(pool.code)}", answers.Pool, msgspec.json.encode(body), repeatable=True)


def delete_pool(code: str) -> Call[answers.Pool]:
    """Remove a pool."""
    return Call("DELETE", f"{_POOLS}/{_part(code)}", answers.Pool)


def _query(given: Mapping[str, object], cursor: str | None) -> str:
    query = urlencode({**given, **({} if cursor is None else {"cursor": cursor})})
    return f"?{query}" if query else ""


def _part(text: str) -> str:
    return quote(text, safe="")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
