"""Every number and name that the specification promises, beside what the code has."""

from enum import StrEnum

import msgspec
import pytest

from penstock.delivery.http.settings import DeliverySettings
from penstock.domain import breaker, ids, job_state, limits, order, outcome, pointer
from penstock.domain.breaker import Breaker
from penstock.domain.job import Attempt
from penstock.domain.job_state import JobStatus
from penstock.domain.outcome import (
    AttemptOutcome,
    MediationError,
    MediationOutcome,
    MediationResult,
    NetworkError,
    Timeout,
)
from penstock.events.dispatch import recovery
from penstock.events.dispatch.settings import SchedulerSettings
from penstock.events.process.tokens import LIFETIME_S
from penstock.ops.config import Config
from penstock.ops.config.router_options import HttpVersion
from penstock.queues import open as opening
from penstock.queues.embedded.table import DEDUP_WINDOW_MS
from penstock.queues.sqs.client import SqsPolling
from penstock.queues.sqs.source import PARTIAL_BATCH_PAUSE_S
from penstock.router import schedule
from penstock.router.intake import reach
from penstock.router.monitoring import health, warnings
from penstock.router.monitoring.seed_routes import MAX_SEEDED, GroupMode
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from penstock.router.pools import counts, pool, pools
from penstock.router.settings import RouterSettings

ROUTER, DELIVERY, SCHEDULER, POLLING = RouterSettings(), DeliverySettings(), SchedulerSettings(), SqsPolling()
CONFIG = Config()

NUMBERS = {
    # Start and configuration
    "the first sync comes after 2 s": (ROUTER.initial_delay_s, 2),
    "syncs are 5 minutes apart": (ROUTER.sync_interval_s, 300),
    "a sync is tried 12 times": (ROUTER.sync_attempts, 12),
    "every 5 s": (ROUTER.sync_retry_s, 5),
    "there are 10,000 pools at most": (ROUTER.max_pools, 10_000),
    "a warning comes from 5,000 on": (ROUTER.pool_warning_threshold, 5_000),
    "the router is on": (ROUTER.enabled, True),
    "a queue has one connection": (opening.QueueSpec("q", "u").connections, 1),
    # Queues
    "a poll waits 20 s": (POLLING.wait_s, 20),
    "for 10 messages": (POLLING.most, 10),
    "and has 25 s in all": (POLLING.timeout_s, 25),
    "a poll waits as the setting says": (ROUTER.sqs_wait_s, 20),
    "for as many": (ROUTER.sqs_max_messages, 10),
    "and for as long": (ROUTER.sqs_timeout_s, 25),
    "a partial batch is followed by 100 ms": (PARTIAL_BATCH_PAUSE_S, 0.1),
    "a message is visible again after 30 s": (opening.DEFAULT_VISIBILITY_S, 30),
    "a consumer is unhealthy after 60 s": (ROUTER.consumer_health_s, 60),
    "duplicates are known for 5 minutes": (DEDUP_WINDOW_MS, 300_000),
    # Delays
    "a nack is 30 s": (outcome.DEFAULT_DELAY_S, 30),
    "a cascaded one 10 s": (outcome.FAST_FAIL_DELAY_S, 10),
    "a delay is 12 hours at most": (outcome.MAX_DELAY_S, 43_200),
    "a success is a 200": (outcome.SUCCESS.status, 200),
    # Pools
    "a pool has room for 20 per permit": (pool.CAPACITY_PER_PERMIT, 20),
    "and for 50 at least": (pool.MIN_CAPACITY, 50),
    "fewer permits are waited for 60 s": (pool.SHRINK_WAIT_S, 60),
    "the default pool has 20 permits": (pools.DEFAULT_POOL_CONCURRENCY, 20),
    "and this name": (pointer.DEFAULT_POOL_CODE, "DEFAULT-POOL"),
    "messages without a group have this one": (pointer.DEFAULT_GROUP, "__DEFAULT__"),
    # Deliveries
    "a message is tried 3 times": (outcome.MAX_ATTEMPTS, 3),
    "a connection is made within 30 s": (DELIVERY.connect_timeout_s, 30),
    "as the setting says": (ROUTER.connect_timeout_s, 30),
    "an answer comes within 15 minutes": (DELIVERY.request_timeout_s, 900),
    "as the setting says too": (ROUTER.request_timeout_s, 900),
    "by HTTP/2 where it can": (ROUTER.http_version, HttpVersion.HTTP_2),
    "a breaker looks at 10 calls": (breaker.MIN_CALLS, 10),
    "is open for 5 s": (breaker.OPEN_MS, 5000),
    "and needs 3 successes": (breaker.PROBES, 3),
    "its window is 100 calls": (2 * breaker.HALF_CALLS, 100),
    "of the last minute": (2 * breaker.HALF_MS, 60_000),
    # Tasks
    "consumers are looked at every 60 s": (schedule.MONITOR_S, 60),
    "drained pools every 10 s": (schedule.CLEAN_UP_S, 10),
    "leaks every 30 s": (schedule.LEAK_CHECK_S, 30),
    "stops are noticed within 5 s": (reach.TICK_S, 5),
    "consumers have 25 s to stop": (ROUTER.stop_consumers_s, 25),
    "deliveries 30 s to end": (ROUTER.drain_pools_s, 30),
    # Warnings and health
    "a warning is kept for 8 hours": (warnings.EXPIRY_MS, 8 * 3600 * 1000),
    "a repeat within a minute counts up": (warnings.REPEAT_MS, 60_000),
    "there are 1,000 warnings at most": (warnings.MAX_WARNINGS, 1_000),
    "of 2,000 characters": (warnings.MAX_MESSAGE_CHARS, 2_000),
    "a pool that delivers less than 90 % is worth a look": (health.MIN_SUCCESS_RATE, 0.9),
    "from 10 messages on": (health.MIN_JUDGED, 10),
    "20 groups of a pool are shown": (counts.SHOWN_GROUPS, 20),
    "10,000 messages are seeded at most": (MAX_SEEDED, 10_000),
    # Scheduler
    "jobs are looked for every 5 s": (SCHEDULER.poll_interval_s, 5),
    "20 at a time": (SCHEDULER.batch_size, 20),
    "10 groups at once": (SCHEDULER.max_concurrent_groups, 10),
    "a job is suspected after 15 minutes": (SCHEDULER.stale_after_s, 900),
    "lost jobs are looked for every 60 s": (SCHEDULER.stale_poll_s, 60),
    "100 at a time": (SCHEDULER.stale_batch_size, 100),
    "a claim lasts 30 s": (SCHEDULER.claim_lease_s, 30),
    "clocks may differ by a minute": (recovery.CLOCK_SKEW_MS, 60_000),
    "a token lasts 15 days": (LIFETIME_S, 15 * 86_400),
    "a job has this sequence": (order.DEFAULT_SEQUENCE, 99),
    "and this group": (order.DEFAULT_GROUP, "default"),
    "and this pool": (job_state.DEFAULT_DISPATCH_POOL, "DISPATCH-POOL"),
    "and this type": (job_state.DIRECT_TYPE, "DISPATCH_JOB"),
    "and this endpoint": (CONFIG.scheduler.endpoint, "http://localhost:8080/api/dispatch/process"),
    "the scheduler is on": (CONFIG.scheduler.enabled, True),
    "it leads for 30 s": (CONFIG.scheduler.lease_ttl_s, 30),
    "and says so every 10 s": (CONFIG.scheduler.lease_renew_s, 10),
    # Topics and subscriptions
    "a message has 10 MiB at most": (limits.MAX_MESSAGE_BYTES, 10 * 1024 * 1024),
    "its attributes keys of 256 bytes": (limits.MAX_ATTRIBUTE_KEY_BYTES, 256),
    "and values of 1,024": (limits.MAX_ATTRIBUTE_VALUE_BYTES, 1_024),
    "an ack deadline is 10 s at least": (limits.MIN_ACK_DEADLINE_S, 10),
    "and 600 s at most": (limits.MAX_ACK_DEADLINE_S, 600),
    "and 10 s unless chosen": (limits.DEFAULT_ACK_DEADLINE_S, 10),
    "a filter has 256 bytes": (limits.MAX_FILTER_BYTES, 256),
    "10,000 messages of a subscription wait": (limits.SUBSCRIPTION_MAX_MESSAGES, 10_000),
    "or 100 MiB": (limits.SUBSCRIPTION_MAX_BYTES, 100 * 1024 * 1024),
    "for 7 days": (limits.DEFAULT_RETENTION_S, 7 * 86_400),
    # Ids
    "ids count from 2020-01-01": (ids.EPOCH_MS, 1_577_836_800_000),
}


NAMES = {
    WarningCode: {
        "CONFIG_SYNC_FAILED", "ROUTING", "QUEUE_FULL", "POOL_LIMIT", "PIPELINE_MAP_LEAK", "CONSUMER_RESTART",
        "CONSUMER_RESTART_FAILED", "SHUTDOWN_CLEANUP_ERRORS", "GROUP_THREAD_RESTART", "GROUP_THREAD_EXIT_WITH_MESSAGES",
        "SEMAPHORE_RELEASE_FAILED", "MEDIATOR_NULL_RESULT", "PROCESSING", "CONFIGURATION", "MALFORMED_MESSAGE",
        "QUEUE_VALIDATION",
    },
    WarningSeverity: {"INFO", "WARN", "ERROR", "CRITICAL"},
    MediationResult: {"SUCCESS", "ERROR_PROCESS", "ERROR_CONFIG", "ERROR_CONNECTION"},
    pointer.DispatchMode: {"IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"},
    JobStatus: {"PENDING", "QUEUED", "PROCESSING", "COMPLETED", "ERROR", "CANCELLED", "EXPIRED"},
    GroupMode: {"unique", "1of8", "single"},
}  # fmt: skip
POINTER = {
    "id", "poolCode", "authToken", "mediationType", "mediationTarget", "messageGroupId", "highPriority", "dispatchMode",
    "signingSecrets",
}  # fmt: skip


@pytest.mark.parametrize("names", NAMES, ids=lambda names: str(names.__name__))
def test_names_are_what_was_promised(names: type[StrEnum]) -> None:
    assert {each.value for each in names} == NAMES[names]


def test_the_fields_of_a_pointer_have_the_promised_names() -> None:
    assert {field.encode_name for field in msgspec.structs.fields(pointer.MessagePointer)} == POINTER


@pytest.mark.parametrize("promise", NUMBERS)
def test_a_number_is_what_was_promised(promise: str) -> None:
    actual, promised = NUMBERS[promise]
    assert actual == promised
    assert type(actual) is type(promised) or isinstance(promised, int)


@pytest.mark.parametrize("name", ["poll_interval_s", "batch_size", "max_batch_size", "max_concurrent_groups",
                                  "jobs_per_lane", "claim_lease_s", "stale_after_s", "stale_poll_s",
                                  "stale_batch_size", "archive_after_s", "keep_archive_s"])  # fmt: skip
def test_the_configuration_and_the_scheduler_have_the_same_defaults(name: str) -> None:
    assert getattr(CONFIG.scheduler, name) == getattr(SCHEDULER, name)


@pytest.mark.parametrize("ended", AttemptOutcome)
def test_only_a_deferred_attempt_spends_nothing(ended: AttemptOutcome) -> None:
    attempt = Attempt(number=1, outcome=ended, at_ms=0, duration_ms=0)
    assert attempt.spends == (ended != AttemptOutcome.DEFERRED)


@pytest.mark.parametrize("error", [Timeout(1), NetworkError("reset")])
def test_the_pauses_between_attempts_are_one_and_two_seconds(error: MediationError) -> None:
    failed = MediationOutcome(MediationResult.ERROR_CONNECTION, error=error)
    assert [outcome.retry_delay_s(failed, attempt) for attempt in (1, 2, 3)] == [1, 2, None]


@pytest.mark.parametrize(("calls", "failures", "opens"), [(9, 9, False), (10, 4, False), (10, 5, True)])
def test_a_breaker_opens_at_half_of_ten_calls(calls: int, failures: int, opens: bool) -> None:
    made = Breaker(0)
    for number in range(calls):
        ticket = made.admit(0)
        assert ticket is not None
        made.settle(ticket, breaker.FAILED if number >= calls - failures else breaker.ALIVE, 0)
    assert (made.state is breaker.OPEN) == opens
