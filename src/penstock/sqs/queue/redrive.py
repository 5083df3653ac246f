"""Redrive policies: where a queue's dead letters go, whose dead letters it takes, and what a moved message keeps."""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from penstock.domain.message import NO_ATTRIBUTES, Message
from penstock.engine import Entry
from penstock.sqs.errors import SqsError, invalid_attribute_value, invalid_parameter
from penstock.sqs.names import FIFO_SUFFIX, parse_arn

SOURCE_ARN = "DeadLetterQueueSourceArn"
_EARLIER_RECEIVES = "EarlierReceives"
_FIRST_RECEIVED = "FirstReceived"
_MOVE_NOTES = frozenset({SOURCE_ARN, _EARLIER_RECEIVES, _FIRST_RECEIVED})
MAX_RECEIVE_COUNT = 1000
MAX_SOURCE_ARNS = 10

_ECHOED_CHARS = 1024
_COUNT = re.compile("[0-9]{1,4}")
_OTHER_SERVICE = re.compile(r"arn:aws[a-z-]*:(?!sqs:)[a-z0-9-]+:[a-z0-9-]*:[0-9]*:.+")


class RedrivePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """The queue for messages that were received too often."""

    dead_letter_target_arn: str
    max_receive_count: int

    def as_json(self) -> str:
        """Return the attribute's value; the count is a number, as on AWS, even if it was set as text."""
        return msgspec.json.encode(self).decode()


class RedrivePermission(Enum):
    """Which queues may name this one as their dead-letter queue."""

    ALLOW_ALL = "allowAll"
    DENY_ALL = "denyAll"
    BY_QUEUE = "byQueue"


class RedriveAllowPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which queues may send their dead letters here."""

    redrive_permission: RedrivePermission
    source_queue_arns: tuple[str, ...] = ()

    def allows(self, source_arn: str) -> bool:
        """Return whether a queue may send its dead letters here."""
        if self.redrive_permission is RedrivePermission.BY_QUEUE:
            return source_arn in self.source_queue_arns
        return self.redrive_permission is RedrivePermission.ALLOW_ALL

    def as_json(self) -> str:
        """Return the attribute's value."""
        return msgspec.json.encode(self).decode()


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, or None if it is not one."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_redrive_policy(text: str) -> RedrivePolicy | None:
    """Read a RedrivePolicy attribute; the empty text removes it."""
    if not text:
        return None
    policy = json_object(text)
    if policy is None:
        raise invalid_attribute_value(
            "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON map."
        )
    for key in ("maxReceiveCount", "deadLetterTargetArn"):
        if key not in policy:
            raise _refused("RedrivePolicy", text, f"Redrive policy does not contain mandatory attribute: {key}.")
    if len(policy) > 2:
        raise _refused(
            "RedrivePolicy", text, "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn]."
        )
    target = policy["deadLetterTargetArn"]
    if isinstance(target, str) and _OTHER_SERVICE.fullmatch(target):
        raise _refused("RedrivePolicy", text, "Only SQS queues are valid resources for deadLetterTargetArn.")
    if not isinstance(target, str) or parse_arn(target) is None:
        raise _refused("RedrivePolicy", text, "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(target, _receive_count(policy["maxReceiveCount"], text))


def read_redrive_allow_policy(text: str) -> RedriveAllowPolicy | None:
    """Read a RedriveAllowPolicy attribute; the empty text removes it."""
    if not text:
        return None
    policy = json_object(text)
    if policy is None or not policy.keys() <= {"redrivePermission", "sourceQueueArns"}:
        raise _unsupported_format()
    try:
        allow = msgspec.convert(policy, RedriveAllowPolicy)
    except msgspec.ValidationError:
        raise _unsupported_format() from None
    by_queue = allow.redrive_permission is RedrivePermission.BY_QUEUE
    if by_queue and not allow.source_queue_arns:
        raise _cannot_allow(
            text,
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        )
    if not by_queue and allow.source_queue_arns:
        raise _cannot_allow(
            text, "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
        )
    if len(allow.source_queue_arns) > MAX_SOURCE_ARNS:
        raise _cannot_allow(text, f"The maximum number of source queue ARNs you can specify is {MAX_SOURCE_ARNS}.")
    if any(parse_arn(source) is None for source in allow.source_queue_arns):
        raise _unsupported_format()
    return allow


def check_dead_letter_queue(
    policy: RedrivePolicy,
    text: str,
    *,
    source_arn: str,
    source_fifo: bool,
    target_exists: bool,
    target_allows: RedriveAllowPolicy | None,
) -> None:
    """Raise InvalidParameterValue unless the target is of the same kind, as its name shows, exists and allows it."""
    if policy.dead_letter_target_arn.endswith(FIFO_SUFFIX) is not source_fifo:
        # The second period is AWS's.
        reason = "Dead-letter queue must be same type of queue as the source.."
        raise _refused("RedrivePolicy", text, reason)
    if not target_exists:
        raise _refused("RedrivePolicy", text, "Dead letter target does not exist.")
    if target_allows is not None and not target_allows.allows(source_arn):
        raise _refused("RedrivePolicy", text, "The dead-letter queue's redrive allow policy does not allow the source.")


def _receive_count(value: object, text: str) -> int:
    count = 0
    if isinstance(value, str) and _COUNT.fullmatch(value):
        count = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    if not 1 <= count <= MAX_RECEIVE_COUNT:
        shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        raise _refused(
            "RedrivePolicy",
            text,
            f"Invalid value for maxReceiveCount: {shown[:64]}, valid values are from 1 to {MAX_RECEIVE_COUNT} "
            "both inclusive.",
        )
    return count


def _refused(name: str, text: str, reason: str) -> SqsError:
    return invalid_parameter(f"Value {text[:_ECHOED_CHARS]} for parameter {name} is invalid. Reason: {reason}")


def _cannot_allow(text: str, reason: str) -> SqsError:
    return _refused("RedriveAllowPolicy", text, f"Amazon SQS can't create the redrive allow policy. {reason}")


def _unsupported_format() -> SqsError:
    return invalid_attribute_value(
        "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create the redrive allow "
        "policy, as it\u2019s in an unsupported format."
    )


def moved_copy(
    entry: Entry, source_arn: str | None, now_ms: int, new_ids: Callable[[], list[str]], *, fifo: bool
) -> Message:
    """Return the message to send: a dead letter of the queue with this ARN, or a new message if a task moves it."""
    message = entry.message
    notes = {key: value for key, value in message.notes.items() if key not in _MOVE_NOTES}
    copy = msgspec.structs.replace(message, sent_ms=now_ms, deliver_at_ms=0, notes=notes or NO_ATTRIBUTES)
    if source_arn is None:
        return msgspec.structs.replace(copy, id=new_ids()[0])
    # The receives are counted on.
    notes[SOURCE_ARN] = source_arn
    notes[_EARLIER_RECEIVES] = str(total_receives(entry))
    notes[_FIRST_RECEIVED] = str(first_received_ms(entry))
    if fifo:
        # Retention starts again, and two messages that had the same deduplication id in their source are both kept.
        return msgspec.structs.replace(copy, notes=notes, dedup_id=message.id)
    return msgspec.structs.replace(copy, notes=notes, sent_ms=message.sent_ms)


def total_receives(entry: Entry) -> int:
    """Return how often a message was received, here and in the queues it came from as a dead letter."""
    return entry.receive_count + int(entry.message.notes.get(_EARLIER_RECEIVES, 0))


def first_received_ms(entry: Entry) -> int:
    """Return when a message was first received, here or in a queue it came from as a dead letter."""
    return int(entry.message.notes.get(_FIRST_RECEIVED, entry.first_received_ms))
