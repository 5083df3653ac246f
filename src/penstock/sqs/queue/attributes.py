"""The attributes of a queue: create, change, compare and show them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.domain.limits import MIB
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.names import check_name
from penstock.sqs.queue.attribute_rules import (
    RULES,
    DeduplicationScope,
    FifoThroughputLimit,
    read,
    refused,
    unknown_attribute,
)
from penstock.sqs.queue.redrive import RedriveAllowPolicy as RedriveAllowPolicy
from penstock.sqs.queue.redrive import RedrivePolicy as RedrivePolicy
from penstock.sqs.queue.redrive import json_object
from penstock.sqs.queue.throttle import THROTTLE_FIELDS, ThrottleSettings, throttle_texts, with_throttles

ALL = "All"

_SPLIT = ("FifoThroughputLimit", "DeduplicationScope")
_PARTITIONING = ("PartitionCount", *_SPLIT)
_FIFO_ONLY = ("FifoQueue", "ContentBasedDeduplication")


class QueueAttributes(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The settings of a queue, with AWS's defaults; the store keeps them as JSON."""

    visibility_timeout: int = 30
    message_retention_period: int = 345_600
    delay_seconds: int = 0
    receive_message_wait_time_seconds: int = 0
    maximum_message_size: int = MIB
    policy: str = ""
    redrive_policy: RedrivePolicy | None = None
    redrive_allow_policy: RedriveAllowPolicy | None = None
    fifo_queue: bool = False
    content_based_deduplication: bool = False
    deduplication_scope: DeduplicationScope = DeduplicationScope.QUEUE
    fifo_throughput_limit: FifoThroughputLimit = FifoThroughputLimit.PER_QUEUE
    sqs_managed_sse_enabled: bool = True
    kms_master_key_id: str = ""
    kms_data_key_reuse_period_seconds: int = 300
    partition_count: int = 1
    partitions_given: bool = False
    """Whether the queue was created with a PartitionCount, which then fixes the attributes of the split."""
    durable_leases: bool | None = None
    """Whether a receive is answered once its leases are durable; None leaves it to the server."""
    throttles: ThrottleSettings = ThrottleSettings()

    @property
    def effective_partitions(self) -> int:
        """Return the number of partitions in use; with one quota for the whole queue, it is one."""
        return 1 if self.fifo_throughput_limit is FifoThroughputLimit.PER_QUEUE else self.partition_count

    @property
    def deduplicates_by_group(self) -> bool:
        """Return whether a deduplication id is unique only within its group."""
        return self.deduplication_scope is DeduplicationScope.MESSAGE_GROUP


class LiveCounters(msgspec.Struct, frozen=True, kw_only=True):
    """What GetQueueAttributes returns besides the settings."""

    queue_arn: str
    created_timestamp: int
    last_modified_timestamp: int
    visible: int = 0
    not_visible: int = 0
    delayed: int = 0
    oldest_age_s: int | None = None
    """The age of the oldest message, leased or not; None if it was not asked for or there is none."""


_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(QueueAttributes)}
_READ_ONLY = (
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
)
OLDEST_AGE = "ApproximateAgeOfOldestMessage"
"""What CloudWatch has on AWS; here it is an attribute for whoever names it, which `All` does not show."""
_KNOWN = frozenset({ALL, *RULES, *THROTTLE_FIELDS, *_READ_ONLY, OLDEST_AGE})


def for_create(name: str, raw: Mapping[str, str], *, admin: bool, default_partitions: int) -> QueueAttributes:
    """Return the attributes of a new queue; `default_partitions` apply to AWS's high-throughput settings."""
    _check_settable(raw, admin=admin)
    fifo = "FifoQueue" in raw and read("FifoQueue", raw["FifoQueue"]) is True
    check_name(name, fifo=fifo)
    if not fifo:
        _check_standard(raw)
    values = _read_all(raw)
    if fifo:
        values |= _partitioning(values, default_partitions)
    return msgspec.structs.replace(
        QueueAttributes(throttles=with_throttles(ThrottleSettings(), raw)), **_with_encryption(values)
    )


def merged(current: QueueAttributes, raw: Mapping[str, str], *, admin: bool) -> QueueAttributes:
    """Return the attributes after a SetQueueAttributes; if one is refused, none changes."""
    _check_settable(raw, admin=admin)
    if not current.fifo_queue:
        _check_standard(raw)
    values = _read_all(raw)
    for name in ("FifoQueue", "PartitionCount", *(_SPLIT if current.partitions_given else ())):
        field = _FIELDS[name]
        if field in values and values[field] != getattr(current, field):
            reason = "Modifying queue type is not supported" if name == "FifoQueue" else "It is fixed at creation"
            raise refused(name, reason)
    changed = msgspec.structs.replace(
        current, **_with_encryption(values), throttles=with_throttles(current.throttles, raw)
    )
    _check_split(changed.deduplication_scope, changed.fifo_throughput_limit)
    return changed


def difference(existing: QueueAttributes, asked: QueueAttributes, mentioned: Iterable[str]) -> str | None:
    """Return the first attribute named by a CreateQueue whose value differs; as on AWS, others are not compared."""
    return next((name for name in mentioned if _comparable(existing, name) != _comparable(asked, name)), None)


def shown(attributes: QueueAttributes, names: Iterable[str], live: LiveCounters, *, admin: bool) -> dict[str, str]:
    """Return the answer of GetQueueAttributes; attributes that are not set are left out."""
    asked = set(names)
    for name in asked:
        if name not in _KNOWN:
            raise unknown_attribute(name)
    texts = _live_texts(live) | _texts(attributes)
    if admin and not (ALL in asked and attributes.throttles.off):
        texts |= throttle_texts(attributes.throttles)
    if not attributes.partitions_given and "PartitionCount" not in asked:
        texts.pop("PartitionCount", None)
    if OLDEST_AGE in asked and live.oldest_age_s is not None:
        texts[OLDEST_AGE] = str(live.oldest_age_s)
    return texts if ALL in asked else {name: text for name, text in texts.items() if name in asked}


def _check_settable(raw: Mapping[str, str], *, admin: bool) -> None:
    for name in raw:
        if name not in RULES and not (admin and name in THROTTLE_FIELDS):
            raise unknown_attribute(name)


def _check_standard(raw: Mapping[str, str]) -> None:
    for name in _FIFO_ONLY:
        if name in raw:
            raise unknown_attribute(name)
    for name in _SPLIT:
        if name in raw:
            raise SqsError(
                ErrorKind.INVALID_ATTRIBUTE_NAME, f"You can specify the {name} only when FifoQueue is set to true."
            )
    if "PartitionCount" in raw:
        raise refused("PartitionCount", "It is for FIFO queues")


def _read_all(raw: Mapping[str, str]) -> dict[str, Any]:
    return {_FIELDS[name]: read(name, text) for name, text in raw.items() if name in RULES}


def _partitioning(values: Mapping[str, Any], default_partitions: int) -> dict[str, Any]:
    count: int | None = values.get("partition_count")
    split = count is not None and count > 1
    # A deduplication id can only be unique within a partition, so a split queue's defaults differ from AWS's.
    scope = values.get("deduplication_scope", DeduplicationScope.MESSAGE_GROUP if split else DeduplicationScope.QUEUE)
    limit = values.get(
        "fifo_throughput_limit",
        FifoThroughputLimit.PER_MESSAGE_GROUP_ID if split else FifoThroughputLimit.PER_QUEUE,
    )
    per_group = limit is FifoThroughputLimit.PER_MESSAGE_GROUP_ID
    if split and scope is DeduplicationScope.QUEUE:
        raise invalid_parameter(
            f"Value {count} for parameter PartitionCount is invalid. Reason: A queue with partitions needs "
            "DeduplicationScope messageGroup."
        )
    _check_split(scope, limit)
    given = count is not None
    if count is None:
        count = default_partitions if per_group else 1
    return {
        "deduplication_scope": scope,
        "fifo_throughput_limit": limit,
        "partition_count": count,
        "partitions_given": given,
    }


def _check_split(scope: DeduplicationScope, limit: FifoThroughputLimit) -> None:
    if limit is FifoThroughputLimit.PER_MESSAGE_GROUP_ID and scope is DeduplicationScope.QUEUE:
        raise refused(
            "FifoThroughputLimit",
            "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup",
        )


def _with_encryption(values: dict[str, Any]) -> dict[str, Any]:
    """Let one kind of encryption turn the other off; refuse both at once."""
    if values.get("kms_master_key_id"):
        if values.get("sqs_managed_sse_enabled"):
            raise SqsError(
                ErrorKind.INVALID_ATTRIBUTE_NAME,
                "You can use one type of server-side encryption (SSE) at one time. "
                "You can either enable KMS SSE or SQS SSE.",
            )
        return values | {"sqs_managed_sse_enabled": False}
    if values.get("sqs_managed_sse_enabled"):
        return values | {"kms_master_key_id": ""}
    return values


def _comparable(attributes: QueueAttributes, name: str) -> object:
    if name in THROTTLE_FIELDS:
        return getattr(attributes.throttles, THROTTLE_FIELDS[name])
    if name == "Policy":
        return json_object(attributes.policy)
    return getattr(attributes, _FIELDS[name])


def _live_texts(live: LiveCounters) -> dict[str, str]:
    return {
        "QueueArn": live.queue_arn,
        "ApproximateNumberOfMessages": str(live.visible),
        "ApproximateNumberOfMessagesNotVisible": str(live.not_visible),
        "ApproximateNumberOfMessagesDelayed": str(live.delayed),
        "CreatedTimestamp": str(live.created_timestamp),
        "LastModifiedTimestamp": str(live.last_modified_timestamp),
    }


def _texts(attributes: QueueAttributes) -> dict[str, str]:
    hidden = set() if attributes.fifo_queue else {*_FIFO_ONLY, *_PARTITIONING}
    if not attributes.kms_master_key_id:
        hidden.add("KmsDataKeyReusePeriodSeconds")
    texts = {name: _text(getattr(attributes, _FIELDS[name])) for name in RULES if name not in hidden}
    return {name: text for name, text in texts.items() if text}


def _text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case RedrivePolicy() | RedriveAllowPolicy():
            return value.as_json()
        case DeduplicationScope() | FifoThroughputLimit():
            return str(value.value)
        case _:
            return str(value)
