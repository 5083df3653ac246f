"""Checks of a request's contents: characters, ids, sizes, ranges and batches, each with AWS's error."""

import re
from functools import lru_cache

from penstock.domain.limits import MIB
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, missing_parameter
from penstock.sqs.model import BatchResultErrorEntry

MAX_BATCH_BYTES = MIB
MAX_DELAY_S = 900
MAX_VISIBILITY_S = 43_200
MAX_WAIT_S = 20
MAX_RECEIVED = 10

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROLS = bytes(set(range(32)) - {0x09, 0x0A, 0x0D})
_is_identifier = re.compile("[!-~]{1,128}").fullmatch
_ENTRY_ID = re.compile("[A-Za-z0-9_-]{1,80}")
# Matches all ids of a batch at once, one per line.
_ENTRY_IDS = re.compile(f"{_ENTRY_ID.pattern}(?:\n{_ENTRY_ID.pattern})*")


def forbidden_character(text: str) -> str | None:
    """Return the first character that SQS does not allow."""
    found = _FORBIDDEN.search(text)
    return None if found is None else found[0]


def encoded(text: str) -> bytes | None:
    """Return the text as UTF-8, or None if it has a character that SQS does not allow.

    Deleting what is forbidden is ten times as fast as a regular expression, and the bytes are needed anyway.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    if len(data.translate(None, _CONTROLS)) != len(data):
        return None
    if not text.isascii() and ("\ufffe" in text or "\uffff" in text):
        return None
    return data


def is_harmless(json: bytes) -> bool:
    r"""Return whether no text in a JSON document can have a character that SQS does not allow.

    JSON has controls as `\\u`, `\\b` and `\\f` only. Looking for those once is faster than checking each text.
    """
    if not json.isascii():
        return False
    return b"\\" not in json or not (b"\\u" in json or b"\\b" in json or b"\\f" in json)


def check_body(body: str, *, harmless: bool = False) -> bytes:
    """Return a message body as UTF-8; InvalidMessageContents names a forbidden character, unless it is harmless."""
    data = body.encode() if harmless else encoded(body)
    if data:
        return data
    if data is None:
        raise SqsError(
            ErrorKind.INVALID_MESSAGE_CONTENTS,
            f"Invalid binary character '#x{ord(forbidden_character(body) or ''):X}' was found in the message body, "
            "the set of allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
            "#x10000 to #x10FFFF",
        )
    raise missing_parameter("MessageBody")


def check_group_id(value: str) -> None:
    """Check a MessageGroupId: 1 to 128 visible ASCII characters."""
    if not _is_identifier(value):
        raise _not_an_identifier("MessageGroupId", value)


def check_dedup_id(value: str) -> None:
    """Check a MessageDeduplicationId: 1 to 128 visible ASCII characters."""
    if not _is_identifier(value):
        raise _not_an_identifier("MessageDeduplicationId", value)


def check_attempt_id(value: str) -> None:
    """Check a ReceiveRequestAttemptId: 1 to 128 visible ASCII characters."""
    if not _is_identifier(value):
        raise _not_an_identifier("ReceiveRequestAttemptId", value)


def _not_an_identifier(parameter: str, value: str) -> SqsError:
    return invalid_parameter(
        f"Value {value[:256]} for parameter {parameter} is invalid. Reason: {parameter} can only include "
        "alphanumeric and punctuation characters. 1 to 128 in length."
    )


# Most clients number their entries, so batches share their ids. Only valid ids, which are short, are cached.
@lru_cache(maxsize=64)
def check_entry_ids(entry_ids: tuple[str, ...]) -> None:
    """Check that the ids of a batch's entries are well formed and distinct."""
    lines = "\n".join(entry_ids)
    # An id with a line break in it would count as two.
    if len(set(entry_ids)) == len(entry_ids) == lines.count("\n") + 1 and _ENTRY_IDS.fullmatch(lines):
        return
    seen: set[str] = set()
    for entry_id in entry_ids:
        if _ENTRY_ID.fullmatch(entry_id) is None:
            raise SqsError(
                ErrorKind.INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry_id in seen:
            raise SqsError(ErrorKind.BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry_id} repeated.")
        seen.add(entry_id)


def too_large(maximum_bytes: int, *, fails_by_itself: bool) -> SqsError:
    """Return the error for a message whose body and attributes exceed its queue's MaximumMessageSize."""
    what = "cannot be validated" if fails_by_itself else "are invalid"
    return invalid_parameter(
        f"One or more parameters {what}. Reason: Message must be shorter than {maximum_bytes} bytes."
    )


def check_batch_size(size_bytes: int) -> None:
    """Check the size of a batch; the queue's MaximumMessageSize does not apply to it."""
    if size_bytes > MAX_BATCH_BYTES:
        raise SqsError(
            ErrorKind.BATCH_REQUEST_TOO_LONG,
            f"Batch requests cannot be longer than {MAX_BATCH_BYTES} bytes. You have sent {size_bytes} bytes.",
        )


def check_delay(delay_s: int) -> int:
    """Check and return the DelaySeconds of a message."""
    if not 0 <= delay_s <= MAX_DELAY_S:
        raise invalid_parameter(
            f"Value {delay_s} for parameter DelaySeconds is invalid. "
            f"Reason: DelaySeconds must be >= 0 and <= {MAX_DELAY_S}."
        )
    return delay_s


def check_visibility(timeout_s: int) -> int:
    """Check and return the VisibilityTimeout of a receive."""
    if not 0 <= timeout_s <= MAX_VISIBILITY_S:
        raise _out_of_range("VisibilityTimeout", timeout_s, MAX_VISIBILITY_S)
    return timeout_s


def check_changed_visibility(timeout_s: int, reason: str) -> None:
    """Check the VisibilityTimeout that a message is to have; `reason` ends the text of the error."""
    if not 0 <= timeout_s <= MAX_VISIBILITY_S:
        raise invalid_parameter(f"Value {timeout_s} for parameter VisibilityTimeout is invalid. Reason: {reason}")


def check_wait(wait_s: int) -> int:
    """Check and return the WaitTimeSeconds of a receive."""
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise _out_of_range("WaitTimeSeconds", wait_s, MAX_WAIT_S)
    return wait_s


def check_max_messages(count: int) -> int:
    """Check and return the MaxNumberOfMessages of a receive."""
    if not 1 <= count <= MAX_RECEIVED:
        raise invalid_parameter(
            f"Value {count} for parameter MaxNumberOfMessages is invalid. "
            f"Reason: Must be between 1 and {MAX_RECEIVED}, if provided."
        )
    return count


def _out_of_range(parameter: str, value: int, maximum: int) -> SqsError:
    return invalid_parameter(
        f"Value {value} for parameter {parameter} is invalid. Reason: Must be >= 0 and <= {maximum}, if provided."
    )


MAX_ENTRIES = 10


def check_batch(ids: tuple[str, ...], action: str) -> None:
    """Check that a batch has one to ten entries with distinct, well-formed ids."""
    if not ids:
        raise SqsError(
            ErrorKind.EMPTY_BATCH_REQUEST, f"There should be at least one {action}RequestEntry in the request."
        )
    if len(ids) > MAX_ENTRIES:
        raise SqsError(
            ErrorKind.TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {len(ids)}.",
        )
    check_entry_ids(ids)


def failed_entry(id: str, error: SqsError) -> BatchResultErrorEntry:
    """Return the result of a batch entry that failed."""
    return BatchResultErrorEntry(id, error.kind.query_code, error.message, error.kind.sender_fault)
