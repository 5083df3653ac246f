"""The valid values of each queue attribute, and AWS's error for any other."""

import re
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from penstock.domain.limits import KIB, MIB
from penstock.sqs.actions.contents import MAX_DELAY_S, MAX_VISIBILITY_S, MAX_WAIT_S
from penstock.sqs.errors import ErrorKind, SqsError, invalid_attribute_value
from penstock.sqs.queue.policy_document import is_policy
from penstock.sqs.queue.redrive import json_object, read_redrive_allow_policy, read_redrive_policy

MAX_PARTITIONS = 32
MIN_RETENTION_S = 60
MAX_RETENTION_S = 1_209_600
MIN_DATA_KEY_REUSE_S = 60
MAX_DATA_KEY_REUSE_S = 86_400
MAX_KEY_ID_CHARS = 2048  # KMS: the length of a KeyId

_WHOLE = re.compile("[0-9]{1,10}")


class DeduplicationScope(Enum):
    """The scope in which a deduplication id is unique."""

    QUEUE = "queue"
    MESSAGE_GROUP = "messageGroup"


class FifoThroughputLimit(Enum):
    """What the throughput quota applies to; only per group can a queue have several partitions."""

    PER_QUEUE = "perQueue"
    PER_MESSAGE_GROUP_ID = "perMessageGroupId"


def unknown_attribute(name: str) -> SqsError:
    """Return an InvalidAttributeName error with AWS's text."""
    return SqsError(ErrorKind.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:256]}.")


def refused(name: str, reason: str) -> SqsError:
    """Return an InvalidAttributeValue error with AWS's text."""
    return invalid_attribute_value(f"Invalid value for the parameter {name}. Reason: {reason}.")


def _invalid(name: str) -> SqsError:
    """Return an InvalidAttributeValue error as AWS has it for most attributes, without a reason."""
    return invalid_attribute_value(f"Invalid value for the parameter {name}.")


E = TypeVar("E", bound=Enum)
Rule = Callable[[str, str], object]


def read(name: str, text: str) -> object:
    """Return the value of an attribute that has a rule."""
    return RULES[name](name, text)


def _whole(minimum: int, maximum: int) -> Rule:
    def rule(name: str, text: str) -> int:
        value = int(text) if _WHOLE.fullmatch(text) else -1
        if not minimum <= value <= maximum:
            raise _invalid(name)
        return value

    return rule


def _one_of(words: type[E]) -> Rule:
    def rule(name: str, text: str) -> E:
        try:
            return words(text)
        except ValueError:
            raise _invalid(name) from None

    return rule


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _invalid(name)
    return text.lower() == "true"


def _partition_count(name: str, text: str) -> int:
    value = int(text) if _WHOLE.fullmatch(text) else -1
    if not 0 <= value <= MAX_PARTITIONS or value & (value - 1):
        raise refused(name, f"Must be a power of two from 1 to {MAX_PARTITIONS}")
    return value or 1


def _policy(name: str, text: str) -> str:
    if text and not is_policy(json_object(text) or {}):
        raise _invalid(name)
    return text


def _key_id(name: str, text: str) -> str:
    if len(text) > MAX_KEY_ID_CHARS:
        raise _invalid(name)
    return text


RULES: dict[str, Rule] = {
    "VisibilityTimeout": _whole(0, MAX_VISIBILITY_S),
    "MessageRetentionPeriod": _whole(MIN_RETENTION_S, MAX_RETENTION_S),
    "DelaySeconds": _whole(0, MAX_DELAY_S),
    "ReceiveMessageWaitTimeSeconds": _whole(0, MAX_WAIT_S),
    "MaximumMessageSize": _whole(KIB, MIB),
    "Policy": _policy,
    "RedrivePolicy": lambda _, text: read_redrive_policy(text),
    "RedriveAllowPolicy": lambda _, text: read_redrive_allow_policy(text),
    "FifoQueue": _truth,
    "ContentBasedDeduplication": _truth,
    "DeduplicationScope": _one_of(DeduplicationScope),
    "FifoThroughputLimit": _one_of(FifoThroughputLimit),
    "SqsManagedSseEnabled": _truth,
    "KmsMasterKeyId": _key_id,
    "KmsDataKeyReusePeriodSeconds": _whole(MIN_DATA_KEY_REUSE_S, MAX_DATA_KEY_REUSE_S),
    "PartitionCount": _partition_count,
    "DurableLeases": _truth,
}
