"""Queue attributes: made, changed, compared and shown."""

import json
from collections.abc import Callable
from decimal import Decimal

import msgspec
import pytest

from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.queue.attribute_rules import DeduplicationScope, FifoThroughputLimit
from penstock.sqs.queue.attributes import LiveCounters, QueueAttributes, difference, for_create, merged, shown
from penstock.sqs.queue.redrive import RedriveAllowPolicy, RedrivePermission, RedrivePolicy, check_dead_letter_queue

IAV = ErrorKind.INVALID_ATTRIBUTE_VALUE
IAN = ErrorKind.INVALID_ATTRIBUTE_NAME
IPV = ErrorKind.INVALID_PARAMETER_VALUE

DLQ = "arn:aws:sqs:us-east-1:000000000000:dead"
STATEMENT = {"Sid": "s", "Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": DLQ}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})
SOURCE = "arn:aws:sqs:us-east-1:000000000000:orders"
LIVE = LiveCounters(
    queue_arn=SOURCE, created_timestamp=1, last_modified_timestamp=2, visible=3, not_visible=4, delayed=5
)
HIGH_THROUGHPUT = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
THROTTLED = {"ThrottleSendCapacity": "10", "ThrottleSendRefillPerSecond": "2.5"}


def standard(**raw: str) -> QueueAttributes:
    return for_create("orders", raw, admin=True, default_partitions=8)


def fifo(**raw: str) -> QueueAttributes:
    return for_create("orders.fifo", {"FifoQueue": "true", **raw}, admin=True, default_partitions=8)


def refusal(call: Callable[[], object]) -> SqsError:
    with pytest.raises(SqsError) as caught:
        call()
    return caught.value


def refused(call: Callable[[], object], kind: ErrorKind, name: str) -> None:
    error = refusal(call)
    assert error.kind is kind
    assert name in str(error)


def test_the_defaults_are_aws_s() -> None:
    assert shown(standard(), ["All"], LIVE, admin=True) == {
        "QueueArn": SOURCE,
        "ApproximateNumberOfMessages": "3",
        "ApproximateNumberOfMessagesNotVisible": "4",
        "ApproximateNumberOfMessagesDelayed": "5",
        "CreatedTimestamp": "1",
        "LastModifiedTimestamp": "2",
        "VisibilityTimeout": "30",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "MaximumMessageSize": "1048576",
        "SqsManagedSseEnabled": "true",
    }


def test_a_fifo_queue_shows_more() -> None:
    texts = shown(fifo(ContentBasedDeduplication="true"), ["All"], LIVE, admin=True)

    assert {name: texts[name] for name in texts if name not in shown(standard(), ["All"], LIVE, admin=True)} == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }
    assert shown(fifo(PartitionCount="1"), ["All"], LIVE, admin=True)["PartitionCount"] == "1"


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("VisibilityTimeout", 0, 43_200),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("DelaySeconds", 0, 900),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("MaximumMessageSize", 1024, 1_048_576),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ],
)
def test_ranges(name: str, lowest: int, highest: int) -> None:
    for value in (lowest, highest):
        made = standard(KmsMasterKeyId="alias/x", **{name: str(value)})
        assert shown(made, [name], LIVE, admin=False) == {name: str(value)}
        assert merged(made, {name: str(value)}, admin=False) == made
    for text in (str(lowest - 1), str(highest + 1), "", "x", "1.5", " 60", "٦٠", "1e3", "9" * 30):
        refused(lambda text=text: standard(**{name: text}), IAV, name)  # type: ignore[misc]
        refused(lambda text=text: merged(standard(), {name: text}, admin=True), IAV, name)  # type: ignore[misc]


@pytest.mark.parametrize("name", ["Nope", "", "All", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages"])
def test_unknown_and_read_only_names_are_refused(name: str) -> None:
    refused(lambda: standard(**{name: "1"}), IAN, f"Unknown Attribute {name}.")
    refused(lambda: merged(standard(), {name: "1"}, admin=True), IAN, f"Unknown Attribute {name}.")


def test_fifo_and_the_name_go_together() -> None:
    assert fifo().fifo_queue
    refused(lambda: for_create("orders", {"FifoQueue": "true"}, admin=True, default_partitions=8), IPV, ".fifo")
    refused(lambda: for_create("orders.fifo", {}, admin=True, default_partitions=8), IPV, "1 to 80")
    refused(lambda: fifo(FifoQueue="yes"), IAV, "FifoQueue")


def test_fifo_attributes_are_unknown_to_a_standard_queue() -> None:
    refused(lambda: standard(FifoQueue="false"), IAN, "FifoQueue")
    refused(lambda: standard(ContentBasedDeduplication="true"), IAN, "ContentBasedDeduplication")
    refused(lambda: merged(standard(), {"FifoQueue": "true"}, admin=True), IAN, "FifoQueue")


def test_a_queue_stays_of_its_kind() -> None:
    assert merged(fifo(), {"FifoQueue": "true"}, admin=True) == fifo()
    refused(lambda: merged(fifo(), {"FifoQueue": "false"}, admin=True), IAV, "Modifying queue type is not supported.")


def test_policies_are_json_and_the_empty_text_removes_them() -> None:
    redrive = json.dumps({"deadLetterTargetArn": DLQ, "maxReceiveCount": "4"})
    made = standard(Policy=POLICY, RedrivePolicy=redrive, RedriveAllowPolicy='{"redrivePermission": "denyAll"}')

    assert shown(made, ["Policy", "RedrivePolicy", "RedriveAllowPolicy"], LIVE, admin=False) == {
        "Policy": POLICY,
        "RedrivePolicy": f'{{"deadLetterTargetArn":"{DLQ}","maxReceiveCount":4}}',
        "RedriveAllowPolicy": '{"redrivePermission":"denyAll"}',
    }
    assert merged(made, {"Policy": "", "RedrivePolicy": "", "RedriveAllowPolicy": ""}, admin=True) == standard()
    for text in ("{", "[]", "1", '"x"', "[" * 5000, "\ud800"):
        for name in ("Policy", "RedrivePolicy", "RedriveAllowPolicy"):
            refused(lambda name=name, text=text: standard(**{name: text}), IAV, name)  # type: ignore[misc]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"Statement": []},
        {"Statement": "x"},
        {"Statement": STATEMENT, "Other": 1},
        {"Statement": STATEMENT, "Version": "2020-01-01"},
        {"Statement": [STATEMENT, {**STATEMENT, "Other": 1}]},
        {"Statement": {**STATEMENT, "Effect": "Maybe"}},
        {"Statement": {key: value for key, value in STATEMENT.items() if key != "Principal"}},
        {"Statement": {key: value for key, value in STATEMENT.items() if key != "Action"}},
        {"Statement": {**STATEMENT, "NotAction": "sqs:PurgeQueue"}},
    ],
)
def test_policies_that_are_refused(document: dict[str, object]) -> None:
    refused(lambda: standard(Policy=json.dumps(document)), IAV, "Invalid value for the parameter Policy.")


def test_the_statements_of_a_policy() -> None:
    for version in ({}, {"Version": "2008-10-17"}):
        for statement in (STATEMENT, [STATEMENT] * 20):
            assert standard(Policy=json.dumps({**version, "Id": "i", "Statement": statement})).policy
    too_many = json.dumps({"Statement": [STATEMENT] * 21})
    refused(lambda: standard(Policy=too_many), ErrorKind.OVER_LIMIT, "21 statements were found")


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"deadLetterTargetArn": DLQ},
        {"maxReceiveCount": 1},
        {"deadLetterTargetArn": "dummy", "maxReceiveCount": 42},
        {"deadLetterTargetArn": 5, "maxReceiveCount": 42},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": 0},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": 1001},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": "x"},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": 1.5},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": True},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": None},
        {"deadLetterTargetArn": DLQ, "maxReceiveCount": 1, "more": 1},
    ],
)
def test_a_redrive_policy_names_a_queue_and_a_count(policy: dict[str, object]) -> None:
    refused(lambda: standard(RedrivePolicy=json.dumps(policy)), IPV, "for parameter RedrivePolicy is invalid")


@pytest.mark.parametrize("count", [1, "1", 1000, "1000"])
def test_a_receive_count(count: object) -> None:
    made = standard(RedrivePolicy=json.dumps({"deadLetterTargetArn": DLQ, "maxReceiveCount": count}))

    assert made.redrive_policy == RedrivePolicy(DLQ, int(str(count)))


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ({}, IAV),
        ({"redrivePermission": "some"}, IAV),
        ({"redrivePermission": "allowAll", "more": 1}, IAV),
        ({"redrivePermission": "byQueue", "sourceQueueArns": SOURCE}, IAV),
        ({"redrivePermission": "byQueue", "sourceQueueArns": ["dummy"]}, IAV),
        ({"redrivePermission": "byQueue"}, IPV),
        ({"redrivePermission": "byQueue", "sourceQueueArns": []}, IPV),
        ({"redrivePermission": "denyAll", "sourceQueueArns": [SOURCE]}, IPV),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [f"{SOURCE}{index}" for index in range(11)]}, IPV),
    ],
)
def test_a_bad_redrive_allow_policy(policy: dict[str, object], kind: ErrorKind) -> None:
    refused(lambda: standard(RedriveAllowPolicy=json.dumps(policy)), kind, "RedriveAllowPolicy")


def test_who_may_send_dead_letters() -> None:
    arns = [f"{SOURCE}{index}" for index in range(9)] + [SOURCE]
    by_queue = standard(
        RedriveAllowPolicy=json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": arns})
    ).redrive_allow_policy

    assert by_queue is not None
    assert by_queue.allows(SOURCE)
    assert not by_queue.allows(DLQ)
    assert RedriveAllowPolicy(RedrivePermission.ALLOW_ALL).allows(SOURCE)
    assert not RedriveAllowPolicy(RedrivePermission.DENY_ALL).allows(SOURCE)


@pytest.mark.parametrize(
    ("target", "exists", "allows", "reason"),
    [
        (DLQ, True, None, None),
        (DLQ, True, RedriveAllowPolicy(RedrivePermission.ALLOW_ALL), None),
        (DLQ, False, None, "does not exist"),
        (f"{DLQ}.fifo", True, None, "same type"),
        (f"{DLQ}.fifo", False, None, "same type"),
        (DLQ, True, RedriveAllowPolicy(RedrivePermission.DENY_ALL), "does not allow"),
    ],
)
def test_a_dead_letter_queue_must_fit(
    target: str, exists: bool, allows: RedriveAllowPolicy | None, reason: str | None
) -> None:
    def check() -> None:
        check_dead_letter_queue(
            RedrivePolicy(target, 3),
            "the text",
            source_arn=SOURCE,
            source_fifo=False,
            target_exists=exists,
            target_allows=allows,
        )

    if reason is None:
        check()
    else:
        refused(check, IPV, reason)


def test_one_kind_of_encryption_at_a_time() -> None:
    kms = merged(standard(), {"KmsMasterKeyId": "alias/x"}, admin=False)
    names = ["KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"]

    assert (kms.sqs_managed_sse_enabled, kms.kms_data_key_reuse_period_seconds) == (False, 300)
    assert shown(kms, names, LIVE, admin=False) == {
        "KmsMasterKeyId": "alias/x",
        "KmsDataKeyReusePeriodSeconds": "300",
        "SqsManagedSseEnabled": "false",
    }
    sse = merged(kms, {"SqsManagedSseEnabled": "true"}, admin=False)
    assert shown(sse, names, LIVE, admin=False) == {"SqsManagedSseEnabled": "true"}
    assert shown(merged(kms, {"KmsMasterKeyId": ""}, admin=False), names, LIVE, admin=False) == {
        "SqsManagedSseEnabled": "false"
    }
    refused(
        lambda: standard(KmsMasterKeyId="x", SqsManagedSseEnabled="true"), IAN, "one type of server-side encryption"
    )


# Partitions


@pytest.mark.parametrize(
    ("raw", "partitions"),
    [
        ({}, 1),
        ({"PartitionCount": "0"}, 1),
        ({"PartitionCount": "1"}, 1),
        ({"DeduplicationScope": "messageGroup"}, 1),
        (HIGH_THROUGHPUT, 8),
        ({**HIGH_THROUGHPUT, "PartitionCount": "1"}, 1),
        ({**HIGH_THROUGHPUT, "PartitionCount": "0"}, 1),
        *[({**HIGH_THROUGHPUT, "PartitionCount": str(2**power)}, 2**power) for power in range(6)],
        ({"PartitionCount": "4"}, 4),
        ({"PartitionCount": "4", "DeduplicationScope": "messageGroup"}, 4),
        ({"PartitionCount": "4", "FifoThroughputLimit": "perMessageGroupId"}, 4),
        ({"PartitionCount": "4", "FifoThroughputLimit": "perQueue"}, 1),
    ],
)
def test_how_many_partitions(raw: dict[str, str], partitions: int) -> None:
    made = fifo(**raw)

    assert made.effective_partitions == partitions
    assert made.effective_partitions == 1 or made.deduplicates_by_group


@pytest.mark.parametrize("count", ["3", "5", "33", "64", "-1", "x", "", "4.0", "1e1", "+4", " 4"])
def test_bad_partition_counts(count: str) -> None:
    refused(lambda: fifo(PartitionCount=count, **HIGH_THROUGHPUT), IAV, "PartitionCount")


@pytest.mark.parametrize(
    "raw",
    [{"PartitionCount": "4"}, {"PartitionCount": "1"}],
)
def test_a_standard_queue_has_no_partitions(raw: dict[str, str]) -> None:
    refused(lambda: standard(**raw), IAV, next(iter(raw)))
    refused(lambda: merged(standard(), raw, admin=True), IAV, next(iter(raw)))


def test_unknown_words_are_refused() -> None:
    refused(lambda: fifo(FifoThroughputLimit="perShard"), IAV, "FifoThroughputLimit")
    refused(lambda: fifo(DeduplicationScope="Queue"), IAV, "DeduplicationScope")


def test_a_key_cannot_be_unique_across_partitions() -> None:
    refused(lambda: fifo(PartitionCount="2", DeduplicationScope="queue"), IPV, "PartitionCount")
    refused(lambda: fifo(FifoThroughputLimit="perMessageGroupId"), IAV, "FifoThroughputLimit")


@pytest.mark.parametrize(
    ("name", "same", "other"),
    [
        ("PartitionCount", "8", "4"),
        ("PartitionCount", "8", "0"),
        ("FifoThroughputLimit", "perMessageGroupId", "perQueue"),
        ("DeduplicationScope", "messageGroup", "queue"),
    ],
)
def test_partitioning_is_fixed_at_creation(name: str, same: str, other: str) -> None:
    made = fifo(**HIGH_THROUGHPUT, PartitionCount="8")

    assert merged(made, {name: same}, admin=False) == made
    refused(lambda: merged(made, {name: other, "DelaySeconds": "5"}, admin=False), IAV, name)


def test_no_partitions_and_one_are_the_same() -> None:
    assert merged(fifo(), {"PartitionCount": "0"}, admin=False) == merged(fifo(), {"PartitionCount": "1"}, admin=False)
    refused(lambda: merged(fifo(), {"PartitionCount": "2"}, admin=False), IAV, "PartitionCount")


# Throttling


def test_an_admin_sets_and_sees_throttles() -> None:
    made = standard(**THROTTLED)

    assert shown(made, ["ThrottleSendRefillPerSecond"], LIVE, admin=True) == {"ThrottleSendRefillPerSecond": "2.5"}
    assert {name: text for name, text in shown(made, ["All"], LIVE, admin=True).items() if "Throttle" in name} == {
        "ThrottleSendCapacity": "10",
        "ThrottleSendRefillPerSecond": "2.5",
        "ThrottleRecvCapacity": "0",
        "ThrottleRecvRefillPerSecond": "0",
        "ThrottleDefaultCapacity": "0",
        "ThrottleDefaultRefillPerSecond": "0",
    }
    off = merged(made, dict.fromkeys(THROTTLED, "0"), admin=True)
    assert off.throttles.off
    assert off == standard()


def test_to_a_client_throttles_do_not_exist() -> None:
    made = standard(**THROTTLED)

    refused(
        lambda: for_create("orders", THROTTLED, admin=False, default_partitions=8),
        IAN,
        "Unknown Attribute ThrottleSendCapacity.",
    )
    refused(lambda: merged(made, {"ThrottleSendCapacity": "20"}, admin=False), IAN, "ThrottleSendCapacity")
    assert not [name for name in shown(made, ["All"], LIVE, admin=False) if "Throttle" in name]
    assert shown(made, ["ThrottleSendCapacity", "DelaySeconds"], LIVE, admin=False) == {"DelaySeconds": "0"}
    assert merged(made, {"DelaySeconds": "1"}, admin=False).throttles == made.throttles


@pytest.mark.parametrize(
    ("capacity", "refill", "named"),
    [
        ("nan", "1", "ThrottleRecvCapacity"),
        ("inf", "1", "ThrottleRecvCapacity"),
        ("", "1", "ThrottleRecvCapacity"),
        ("1_000", "1", "ThrottleRecvCapacity"),
        ("1" * 200, "1", "ThrottleRecvCapacity"),
        ("-1", "1", "ThrottleRecvCapacity"),
        ("100000.1", "1", "ThrottleRecvCapacity"),
        ("1e9", "1", "ThrottleRecvCapacity"),
        ("10", "-0.1", "ThrottleRecvRefillPerSecond"),
        ("10", "x", "ThrottleRecvRefillPerSecond"),
        ("0", "1", "ThrottleRecvCapacity"),
        ("10", "0", "ThrottleRecvRefillPerSecond"),
        ("10", "10.5", "ThrottleRecvCapacity"),
        ("9.99", "1", "ThrottleRecvCapacity"),
    ],
)
@pytest.mark.parametrize("verb", ["Send", "Recv", "Default"])
def test_bad_throttles(verb: str, capacity: str, refill: str, named: str) -> None:
    raw = {f"Throttle{verb}Capacity": capacity, f"Throttle{verb}RefillPerSecond": refill}

    refused(lambda: standard(**raw), IAV, named.replace("Recv", verb))


def test_throttles_are_checked_as_they_would_be_after_the_merge() -> None:
    made = standard(**THROTTLED)

    assert merged(made, {"ThrottleSendCapacity": "20"}, admin=True).throttles.send_capacity == 20
    assert merged(
        made, {"ThrottleSendRefillPerSecond": "1e-3"}, admin=True
    ).throttles.send_refill_per_second == Decimal("0.001")
    refused(lambda: merged(made, {"ThrottleSendCapacity": "0"}, admin=True), IAV, "ThrottleSendCapacity")
    refused(lambda: merged(made, {"ThrottleSendRefillPerSecond": "11"}, admin=True), IAV, "ThrottleSendCapacity")
    refused(lambda: merged(made, {"ThrottleRecvCapacity": "20"}, admin=True), IAV, "ThrottleRecvRefillPerSecond")


# CreateQueue of a queue that exists


@pytest.mark.parametrize(
    ("existing", "asked"),
    [
        ({"DelaySeconds": "5"}, {}),
        ({"DelaySeconds": "5"}, {"DelaySeconds": "5"}),
        ({"DelaySeconds": "5"}, {"VisibilityTimeout": "30"}),
        ({"Policy": POLICY}, {"Policy": json.dumps(json.loads(POLICY), indent=1)}),
        (THROTTLED, {"ThrottleSendCapacity": "10.0", "ThrottleSendRefillPerSecond": "2.50"}),
        (THROTTLED, {}),
    ],
)
def test_the_same_queue_again(existing: dict[str, str], asked: dict[str, str]) -> None:
    assert difference(standard(**existing), standard(**asked), asked) is None


@pytest.mark.parametrize(
    ("existing", "asked", "named"),
    [
        ({"DelaySeconds": "5"}, {"VisibilityTimeout": "30", "DelaySeconds": "0"}, "DelaySeconds"),
        ({}, {"Policy": POLICY}, "Policy"),
        ({}, {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}, "RedriveAllowPolicy"),
        (THROTTLED, {**THROTTLED, "ThrottleSendCapacity": "11"}, "ThrottleSendCapacity"),
        (THROTTLED, dict.fromkeys(THROTTLED, "0"), "ThrottleSendCapacity"),
    ],
)
def test_another_queue_of_the_name(existing: dict[str, str], asked: dict[str, str], named: str) -> None:
    assert difference(standard(**existing), standard(**asked), asked) == named


def test_high_throughput_is_the_same_whatever_the_servers_default() -> None:
    made = fifo(**HIGH_THROUGHPUT)
    again = for_create("orders.fifo", {"FifoQueue": "true", **HIGH_THROUGHPUT}, admin=True, default_partitions=16)

    assert difference(made, again, HIGH_THROUGHPUT) is None
    split = fifo(PartitionCount="4", **HIGH_THROUGHPUT)
    assert difference(made, split, ["PartitionCount"]) == "PartitionCount"


# Shown and stored


def test_only_what_is_asked_for_is_shown() -> None:
    assert shown(standard(), [], LIVE, admin=True) == {}
    assert shown(standard(), ["QueueArn", "QueueArn"], LIVE, admin=True) == {"QueueArn": SOURCE}
    assert shown(standard(), ["Policy", "FifoQueue", "KmsMasterKeyId"], LIVE, admin=True) == {}
    refused(lambda: shown(standard(), ["QueueArn", "Nope"], LIVE, admin=True), IAN, "Unknown Attribute Nope.")


def test_the_store_brings_back_what_was_kept() -> None:
    kept = fifo(
        **HIGH_THROUGHPUT,
        **THROTTLED,
        RedrivePolicy=json.dumps({"deadLetterTargetArn": DLQ, "maxReceiveCount": 4}),
        RedriveAllowPolicy=json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [SOURCE]}),
    )

    assert msgspec.json.decode(msgspec.json.encode(kept), type=QueueAttributes) == kept


def test_the_store_tolerates_other_versions() -> None:
    kept = msgspec.json.decode(
        b'{"DelaySeconds": 5, "FromTheFuture": 1, "Throttles": {"burst_of_tomorrow": "1"}}', type=QueueAttributes
    )

    assert kept == QueueAttributes(delay_seconds=5)
    assert kept.fifo_throughput_limit is FifoThroughputLimit.PER_QUEUE
    assert kept.deduplication_scope is DeduplicationScope.QUEUE
