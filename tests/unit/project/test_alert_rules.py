"""Every alert fires on trouble, with the sentence an operator reads, and keeps quiet otherwise, as promtool sees it."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.services import unavailable
from tests.unit.project.test_ops_files import RULES, rules

FETCHED = Path(__file__).parents[3] / ".cache" / "promtool"
LATE = "59m"
"""When it is looked at: each series has a value every minute before."""

Series = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """What an alert is about: series in trouble and what is told then, and series that are as they should be."""

    alert: str
    trouble: Series
    summary: str
    fine: Sequence[Series]
    labels: Mapping[str, str] = field(default_factory=dict)


CASES = [
    Case(
        "PenstockPartDown",
        {'up{job="penstock",instance="a:8080"}': "1x10 0x60"},
        "a:8080 does not answer",
        [{'up{job="penstock",instance="a:8080"}': "1x60"}, {'up{job="another",instance="b"}': "0x60"}],
        {"job": "penstock", "instance": "a:8080"},
    ),
    Case(
        "PenstockJobsGivenUp",
        {"penstock_jobs_given_up_total": "0x50 15x15"},
        "15 jobs ended in ERROR in 15 minutes",
        [{"penstock_jobs_given_up_total": "15x60"}],
    ),
    Case(
        "PenstockDeliveriesFailing",
        {
            'penstock_job_deliveries_total{outcome="DELIVERED"}': "0+70x60",
            'penstock_job_deliveries_total{outcome="FAILED"}': "0+20x60",
            'penstock_job_deliveries_total{outcome="REFUSED"}': "0+10x60",
        },
        "30% of all deliveries fail",
        [
            {
                'penstock_job_deliveries_total{outcome="DELIVERED"}': "0+90x60",
                'penstock_job_deliveries_total{outcome="FAILED"}': "0+10x60",
                'penstock_job_deliveries_total{outcome="DEFERRED"}': "0+900x60",
            },
            {
                'penstock_job_deliveries_total{outcome="DELIVERED"}': "7x60",
                'penstock_job_deliveries_total{outcome="FAILED"}': "5x60",
            },
        ],
    ),
    Case(
        "PenstockDegraded",
        {"penstock_health_status": "2x60"},
        "Penstock is DEGRADED",
        [{"penstock_health_status": "1x60"}, {"penstock_health_status": "0x50 2x10"}],
    ),
    Case(
        "PenstockSubscriptionFailing",
        {
            'penstock_subscription_deliveries_total{subscription="billing",outcome="DELIVERED"}': "0+4x60",
            'penstock_subscription_deliveries_total{subscription="billing",outcome="FAILED"}': "0+5x60",
            'penstock_subscription_deliveries_total{subscription="billing",outcome="REFUSED"}': "0+1x60",
            'penstock_subscription_deliveries_total{subscription="fine",outcome="DELIVERED"}': "0+9x60",
        },
        "60% of the deliveries to billing fail",
        [
            {
                'penstock_subscription_deliveries_total{subscription="billing",outcome="DELIVERED"}': "0+6x60",
                'penstock_subscription_deliveries_total{subscription="billing",outcome="FAILED"}': "0+4x60",
                'penstock_subscription_deliveries_total{subscription="billing",outcome="DEFERRED"}': "0+90x60",
            }
        ],
        {"subscription": "billing"},
    ),
    Case(
        "PenstockSubscriptionLate",
        {'penstock_subscription_oldest_due_seconds{subscription="billing"}': "900x60"},
        "a job of billing has been due for 15m 0s",
        [{'penstock_subscription_oldest_due_seconds{subscription="billing"}': "599x60"}],
        {"subscription": "billing"},
    ),
    Case(
        "PenstockKeysBlocked",
        {'penstock_subscription_blocked_groups{subscription="billing"}': "3x60"},
        "3 keys of billing wait for a job that was given up",
        [{'penstock_subscription_blocked_groups{subscription="billing"}': "0x60"}],
        {"subscription": "billing"},
    ),
    Case(
        "PenstockSubscriberBreakerOpen",
        {'penstock_subscription_breaker_state{subscription="billing"}': "2x60"},
        "nothing is delivered to billing",
        [{'penstock_subscription_breaker_state{subscription="billing"}': "1x60"}],
        {"subscription": "billing"},
    ),
    Case(
        "PenstockSubscribersSlow",
        {
            'penstock_job_delivery_seconds_bucket{le="10"}': "0+90x60",
            'penstock_job_delivery_seconds_bucket{le="30"}': "0+100x60",
            'penstock_job_delivery_seconds_bucket{le="+Inf"}': "0+100x60",
        },
        "subscribers take 28s (p99)",
        [
            {
                'penstock_job_delivery_seconds_bucket{le="10"}': "0+100x60",
                'penstock_job_delivery_seconds_bucket{le="30"}': "0+100x60",
                'penstock_job_delivery_seconds_bucket{le="+Inf"}': "0+100x60",
            }
        ],
    ),
    Case(
        "PenstockSubscriptionGone",
        {"penstock_subscriptions_gone_total": "0x30 1x40"},
        "a subscription was paused because its endpoint answered 410",
        [{"penstock_subscriptions_gone_total": "1x60"}],
    ),
    Case(
        "PenstockMessagesWaitTooLong",
        {'penstock_router_pool_oldest_waiting_seconds{pool="P"}': "600x60"},
        "a message waits for 10m 0s in pool P",
        [{'penstock_router_pool_oldest_waiting_seconds{pool="P"}': "299x60"}],
        {"pool": "P"},
    ),
    Case(
        "PenstockPoolFull",
        {
            'penstock_router_pool_queued{pool="P"}': "95x60",
            'penstock_router_pool_queue_capacity{pool="P"}': "100x60",
        },
        "pool P is nearly full",
        [
            {
                'penstock_router_pool_queued{pool="P"}': "89x60",
                'penstock_router_pool_queue_capacity{pool="P"}': "100x60",
            }
        ],
        {"pool": "P"},
    ),
    Case(
        "PenstockQueueNotPolled",
        {'penstock_router_queue_healthy{queue="dispatch.fifo"}': "0x60"},
        "the router does not poll dispatch.fifo",
        [{'penstock_router_queue_healthy{queue="dispatch.fifo"}': "1x60"}],
        {"queue": "dispatch.fifo"},
    ),
    Case(
        "PenstockBreakerOpen",
        {'penstock_router_breaker_state{endpoint="https://a.example:443/"}': "2x60"},
        "nothing is delivered to https://a.example:443/",
        [{'penstock_router_breaker_state{endpoint="https://a.example:443/"}': "1x60"}],
        {"endpoint": "https://a.example:443/"},
    ),
    Case(
        "PenstockWarnings",
        {
            'penstock_router_warnings{severity="ERROR"}': "2x60",
            'penstock_router_warnings{severity="CRITICAL"}': "1x60",
            'penstock_router_warnings{severity="WARNING"}': "9x60",
        },
        "3 warnings of the router wait for somebody",
        [{'penstock_router_warnings{severity="WARNING"}': "9x60"}],
    ),
    Case(
        "PenstockSchedulerLags",
        {"penstock_scheduler_lag_seconds": "90x60"},
        "due jobs wait for 1m 30s before they are published",
        [{"penstock_scheduler_lag_seconds": "59x60"}],
    ),
    Case(
        "PenstockNotOneLeader",
        {
            'penstock_scheduler_is_leader{instance="a"}': "0x60",
            'penstock_scheduler_is_leader{instance="b"}': "0x60",
        },
        "0 schedulers lead",
        [
            {
                'penstock_scheduler_is_leader{instance="a"}': "0x60",
                'penstock_scheduler_is_leader{instance="b"}': "1x60",
            }
        ],
    ),
    Case(
        "PenstockSchedulerErrors",
        {'penstock_scheduler_publish_failures_total{instance="a"}': "0+1x60"},
        "the scheduler on a meets errors",
        [{'penstock_scheduler_errors_total{instance="a"}': "0+0.1x60"}],
        {"instance": "a"},
    ),
    Case(
        "PenstockPipelineStopped",
        {'penstock_pipeline_up{query="fan-out"}': "1x50 0x10", 'penstock_pipeline_up{query="facts"}': "1x60"},
        "the pipeline's fan-out does not run",
        [{'penstock_pipeline_up{query="fan-out"}': "1x60"}],
        {"query": "fan-out"},
    ),
    Case(
        "PenstockPipelineFails",
        {'penstock_pipeline_failures_total{query="dispatch"}': "0+1x60"},
        "the pipeline's dispatch failed 15 times in 15 minutes",
        [{'penstock_pipeline_failures_total{query="dispatch"}': "0x50 2x10"}],
        {"query": "dispatch"},
    ),
    Case(
        "PenstockPipelineLags",
        {'penstock_pipeline_lag_rows{query="fan-out"}': "100000+1000x60"},
        "159k rows wait for the pipeline's fan-out, ever more",
        [
            {'penstock_pipeline_lag_rows{query="fan-out"}': "200000-1000x60"},
            {'penstock_pipeline_lag_rows{query="fan-out"}': "0+1000x60"},
        ],
        {"query": "fan-out"},
    ),
    Case(
        "PenstockDamagedMessages",
        {'sqs_damaged_messages{instance="a"}': "0x50 3x10"},
        "3 messages were found damaged on a",
        [{'sqs_damaged_messages{instance="a"}': "0x60"}],
        {"instance": "a"},
    ),
    Case(
        "PenstockStoreRefuses",
        {'sqs_request_errors_total{instance="a",code="InternalFailure"}': "0+1x60"},
        "the SQS server on a answers with errors of its own",
        [{'sqs_request_errors_total{instance="a",code="RequestThrottled"}': "0+1x60"}],
        {"instance": "a"},
    ),
    Case(
        "PenstockQueueGrows",
        {'sqs_queue_messages{queue="orders",state="visible"}': "100000+1000x60"},
        "orders has 159k messages and grows",
        [
            {'sqs_queue_messages{queue="orders",state="visible"}': "200000-1000x60"},
            {'sqs_queue_messages{queue="orders",state="visible"}': "0+1000x60"},
        ],
        {"queue": "orders"},
    ),
    Case(
        "PenstockQueueThrottled",
        {'sqs_throttled_requests_total{queue="orders",action="Send"}': "0+120x60"},
        "the throttle of orders refuses 2 Send requests a second",
        [
            {'sqs_throttled_requests_total{queue="orders",action="Send"}': "0+30x60"},
            {'sqs_throttled_requests_total{queue="orders",action="Send"}': "0x50 0+600x9"},
        ],
        {"queue": "orders", "action": "Send"},
    ),
    Case(
        "PenstockFilesRunOut",
        {
            'process_open_fds{job="penstock",instance="a"}': "900x60",
            'process_max_fds{job="penstock",instance="a"}': "1024x60",
        },
        "a has 900 files open",
        [
            {
                'process_open_fds{job="penstock",instance="a"}': "700x60",
                'process_max_fds{job="penstock",instance="a"}': "1024x60",
            }
        ],
        {"job": "penstock", "instance": "a"},
    ),
]


@pytest.fixture(scope="module")
def promtool() -> str:
    """The one of the machine, or the one that scripts/setup has fetched."""
    found = shutil.which("promtool") or (str(FETCHED) if FETCHED.is_file() else None)
    return found or unavailable("promtool", "`make setup` fetches it where it may use apt-get")


def judged(promtool: str, directory: Path, tests: Sequence[object]) -> None:
    """Let promtool run tests against the rules."""
    file = directory / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": list(tests)}))
    told = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def looked_at(series: Sequence[Series], expected: Mapping[str, Sequence[object]]) -> dict[str, object]:
    """One of promtool's tests. Each of them costs much, so that several alerts are asked for in one."""
    given = [{"series": name, "values": values} for some in series for name, values in some.items()]
    questions = [
        {"eval_time": LATE, "alertname": alert, "exp_alerts": list(fired)} for alert, fired in expected.items()
    ]
    return {"interval": "1m", "input_series": given, "alert_rule_test": questions}


def fired(case: Case) -> dict[str, object]:
    """What an operator reads in trouble."""
    (rule,) = [rule for rule in rules() if rule["alert"] == case.alert]
    return {
        "exp_labels": {**case.labels, **rule["labels"]},
        "exp_annotations": {"summary": case.summary, "description": rule["annotations"]["description"]},
    }


def test_promtool_accepts_the_rules(promtool: str) -> None:
    subprocess.run([promtool, "check", "rules", str(RULES)], check=True, capture_output=True)


def test_each_alert_fires_on_trouble(promtool: str, tmp_path: Path) -> None:
    expected = {case.alert: [fired(case)] for case in CASES}
    judged(promtool, tmp_path, [looked_at([case.trouble for case in CASES], expected)])


def test_no_alert_fires_without_trouble(promtool: str, tmp_path: Path) -> None:
    quiet: dict[str, Sequence[object]] = {case.alert: [] for case in CASES}
    as_it_should_be = zip_longest(*(case.fine for case in CASES), fillvalue={})
    judged(promtool, tmp_path, [looked_at(series, quiet) for series in (*as_it_should_be, ())])


def test_every_alert_is_tried() -> None:
    assert [case.alert for case in CASES] == [rule["alert"] for rule in rules()]
