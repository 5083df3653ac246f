"""Errors under AWS's names. There is one class, which both wire protocols map, so no error is left unmapped.

SqsError                 `kind` names the error in the table below, `message` says what was wrong
"""

from enum import Enum

from penstock.domain.errors import PenstockError

_LEGACY = "AWS.SimpleQueueService."


class ErrorKind(Enum):
    """AWS's error codes: (JSON type, code of the Query protocol, HTTP status)."""

    QUEUE_DOES_NOT_EXIST = ("QueueDoesNotExist", _LEGACY + "NonExistentQueue", 400)
    QUEUE_NAME_EXISTS = ("QueueNameExists", "QueueAlreadyExists", 400)
    PURGE_QUEUE_IN_PROGRESS = ("PurgeQueueInProgress", _LEGACY + "PurgeQueueInProgress", 400)
    BATCH_ENTRY_IDS_NOT_DISTINCT = ("BatchEntryIdsNotDistinct", _LEGACY + "BatchEntryIdsNotDistinct", 400)
    BATCH_REQUEST_TOO_LONG = ("BatchRequestTooLong", _LEGACY + "BatchRequestTooLong", 400)
    EMPTY_BATCH_REQUEST = ("EmptyBatchRequest", _LEGACY + "EmptyBatchRequest", 400)
    INVALID_BATCH_ENTRY_ID = ("InvalidBatchEntryId", _LEGACY + "InvalidBatchEntryId", 400)
    TOO_MANY_ENTRIES = ("TooManyEntriesInBatchRequest", _LEGACY + "TooManyEntriesInBatchRequest", 400)
    INVALID_ATTRIBUTE_NAME = ("InvalidAttributeName", "InvalidAttributeName", 400)
    INVALID_ATTRIBUTE_VALUE = ("InvalidAttributeValue", "InvalidAttributeValue", 400)
    INVALID_MESSAGE_CONTENTS = ("InvalidMessageContents", "InvalidMessageContents", 400)
    MESSAGE_NOT_INFLIGHT = ("MessageNotInflight", _LEGACY + "MessageNotInflight", 400)
    OVER_LIMIT = ("OverLimit", "OverLimit", 400)
    RECEIPT_HANDLE_IS_INVALID = ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400)
    RESOURCE_NOT_FOUND = ("ResourceNotFoundException", "ResourceNotFoundException", 400)
    UNSUPPORTED_OPERATION = ("UnsupportedOperation", _LEGACY + "UnsupportedOperation", 400)
    INVALID_PARAMETER_VALUE = ("InvalidParameterValue", "InvalidParameterValue", 400)
    MISSING_PARAMETER = ("MissingParameter", "MissingParameter", 400)
    MISSING_ACTION = ("MissingAction", "MissingAction", 400)
    INVALID_ACTION = ("InvalidAction", "InvalidAction", 400)
    SERIALIZATION = ("SerializationException", "MalformedInput", 400)
    REQUEST_TOO_LARGE = ("RequestEntityTooLarge", "RequestEntityTooLarge", 413)
    THROTTLING = ("Throttling", "Throttling", 400)
    ACCESS_DENIED = ("AccessDenied", "AccessDenied", 403)
    MISSING_AUTHENTICATION_TOKEN = ("MissingAuthenticationToken", "MissingAuthenticationToken", 403)
    INCOMPLETE_SIGNATURE = ("IncompleteSignature", "IncompleteSignature", 403)
    INVALID_CLIENT_TOKEN_ID = ("InvalidClientTokenId", "InvalidClientTokenId", 403)
    SIGNATURE_DOES_NOT_MATCH = ("SignatureDoesNotMatch", "SignatureDoesNotMatch", 403)
    REQUEST_TIME_TOO_SKEWED = ("RequestTimeTooSkewed", "RequestTimeTooSkewed", 403)
    INTERNAL_FAILURE = ("InternalFailure", "InternalFailure", 500)
    SERVICE_UNAVAILABLE = ("ServiceUnavailable", "ServiceUnavailable", 503)

    def __init__(self, json_type: str, query_code: str, status: int) -> None:
        self.json_type = json_type
        self.query_code = query_code
        self.status = status

    @property
    def sender_fault(self) -> bool:
        """Return whether the caller is at fault, not the server."""
        return self.status < 500


class SqsError(PenstockError):
    """One of AWS's errors."""

    def __init__(self, kind: ErrorKind, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after_s = retry_after_s


def invalid_parameter(message: str) -> SqsError:
    """Return an InvalidParameterValue error."""
    return SqsError(ErrorKind.INVALID_PARAMETER_VALUE, message)


def missing_parameter(name: str) -> SqsError:
    """Return a MissingParameter error with AWS's text."""
    return SqsError(ErrorKind.MISSING_PARAMETER, f"The request must contain the parameter {name}.")


def invalid_attribute_value(message: str) -> SqsError:
    """Return an InvalidAttributeValue error."""
    return SqsError(ErrorKind.INVALID_ATTRIBUTE_VALUE, message)


def queue_does_not_exist() -> SqsError:
    """Return a QueueDoesNotExist error with AWS's text."""
    return SqsError(ErrorKind.QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")


def receipt_handle_is_invalid() -> SqsError:
    """Return a ReceiptHandleIsInvalid error, the same whatever is wrong with the handle."""
    return SqsError(ErrorKind.RECEIPT_HANDLE_IS_INVALID, "The input receipt handle is invalid.")


def not_for_this_kind(parameter: str, value: object) -> SqsError:
    """Return an InvalidParameterValue error for a parameter that only the other kind of queue has."""
    return invalid_parameter(
        f"Value {value} for parameter {parameter} is invalid. "
        "Reason: The request includes a parameter that is not valid for this queue type."
    )
