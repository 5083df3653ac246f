"""Errors under AWS's names. There is one class, which both wire protocols map, so no error is left unmapped.

SqsError                 `kind` names the error in the table below, `message` says what was wrong
"""

from enum import Enum

import msgspec

from penstock.domain.errors import PenstockError

_LEGACY = "AWS.SimpleQueueService."
_SQS = "com.amazonaws.sqs#"
"""The namespace of the errors in the service model."""
_COMMON = "com.amazon.coral.service#"
"""The namespace of the errors that all of AWS's services share; the service model does not list them."""


# A handle of ours has 76 characters; more of an invalid one is not repeated.
_ECHOED_CHARS = 1024


class ErrorKind(Enum):
    """AWS's error codes: (JSON type, code of the Query protocol, HTTP status)."""

    QUEUE_DOES_NOT_EXIST = (_SQS + "QueueDoesNotExist", _LEGACY + "NonExistentQueue", 400)
    QUEUE_DELETED_RECENTLY = (_SQS + "QueueDeletedRecently", _LEGACY + "QueueDeletedRecently", 400)
    QUEUE_NAME_EXISTS = (_SQS + "QueueNameExists", "QueueAlreadyExists", 400)
    PURGE_QUEUE_IN_PROGRESS = (_SQS + "PurgeQueueInProgress", _LEGACY + "PurgeQueueInProgress", 403)
    BATCH_ENTRY_IDS_NOT_DISTINCT = (_SQS + "BatchEntryIdsNotDistinct", _LEGACY + "BatchEntryIdsNotDistinct", 400)
    BATCH_REQUEST_TOO_LONG = (_SQS + "BatchRequestTooLong", _LEGACY + "BatchRequestTooLong", 400)
    EMPTY_BATCH_REQUEST = (_SQS + "EmptyBatchRequest", _LEGACY + "EmptyBatchRequest", 400)
    INVALID_BATCH_ENTRY_ID = (_SQS + "InvalidBatchEntryId", _LEGACY + "InvalidBatchEntryId", 400)
    TOO_MANY_ENTRIES = (_SQS + "TooManyEntriesInBatchRequest", _LEGACY + "TooManyEntriesInBatchRequest", 400)
    INVALID_ATTRIBUTE_NAME = (_SQS + "InvalidAttributeName", "InvalidAttributeName", 400)
    INVALID_ATTRIBUTE_VALUE = (_SQS + "InvalidAttributeValue", "InvalidAttributeValue", 400)
    INVALID_MESSAGE_CONTENTS = (_SQS + "InvalidMessageContents", "InvalidMessageContents", 400)
    OVER_LIMIT = (_SQS + "OverLimit", "OverLimit", 403)
    RECEIPT_HANDLE_IS_INVALID = (_SQS + "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404)
    RESOURCE_NOT_FOUND = (_SQS + "ResourceNotFoundException", "ResourceNotFoundException", 404)
    UNSUPPORTED_OPERATION = (_SQS + "UnsupportedOperation", _LEGACY + "UnsupportedOperation", 400)
    INVALID_PARAMETER_VALUE = (_COMMON + "InvalidParameterValueException", "InvalidParameterValue", 400)
    MISSING_PARAMETER = (_COMMON + "MissingRequiredParameterException", "MissingParameter", 400)
    MISSING_ACTION = (_COMMON + "MissingActionException", "MissingAction", 400)
    INVALID_ACTION = (_COMMON + "UnknownOperationException", "InvalidAction", 400)
    UNKNOWN_OPERATION = (_COMMON + "UnknownOperationException", "UnknownOperationException", 404)
    SERIALIZATION = (_COMMON + "SerializationException", "MalformedInput", 400)
    REQUEST_TOO_LARGE = (_COMMON + "RequestEntityTooLargeException", "RequestEntityTooLarge", 413)
    THROTTLING = (_COMMON + "ThrottlingException", "Throttling", 400)
    ACCESS_DENIED = (_COMMON + "AccessDeniedException", "AccessDenied", 403)
    MISSING_AUTHENTICATION_TOKEN = (
        _COMMON + "MissingAuthenticationTokenException",
        "MissingAuthenticationToken",
        403,
    )
    INCOMPLETE_SIGNATURE = (_COMMON + "IncompleteSignatureException", "IncompleteSignature", 403)
    INVALID_CLIENT_TOKEN_ID = (_COMMON + "UnrecognizedClientException", "InvalidClientTokenId", 403)
    SIGNATURE_DOES_NOT_MATCH = (_COMMON + "InvalidSignatureException", "SignatureDoesNotMatch", 403)
    REQUEST_TIME_TOO_SKEWED = (_COMMON + "RequestTimeTooSkewedException", "RequestTimeTooSkewed", 403)
    INTERNAL_FAILURE = (_COMMON + "InternalFailure", "InternalFailure", 500)
    SERVICE_UNAVAILABLE = (_COMMON + "ServiceUnavailableException", "ServiceUnavailable", 503)
    NOT_OWNER = (_COMMON + "NotOwnerException", "NotOwner", 421)
    """Only between nodes: the one that was asked does not own the shard, and did nothing."""

    def __init__(self, json_type: str, query_code: str, status: int) -> None:
        self.json_type = json_type
        self.query_code = query_code
        self.status = status

    @property
    def name_in_json(self) -> str:
        """Return the type without its namespace."""
        return self.json_type.partition("#")[2]

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


def refusal_of(body: bytes) -> SqsError | None:
    """Return the error that a body of the JSON protocol describes; None if it describes none of ours."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody)
    except msgspec.DecodeError:
        return None
    kind = _BY_JSON_TYPE.get(error.type)
    return None if kind is None else SqsError(kind, error.message)


class _ErrorBody(msgspec.Struct):
    type: str = msgspec.field(name="__type")
    message: str = ""


_BY_JSON_TYPE = {kind.json_type: kind for kind in reversed(ErrorKind)}


def invalid_parameter(message: str) -> SqsError:
    """Return an InvalidParameterValue error."""
    return SqsError(ErrorKind.INVALID_PARAMETER_VALUE, message)


def missing_parameter(name: str) -> SqsError:
    """Return AWS's error for a parameter that is not there: MissingParameter, except for the name of a queue."""
    if name == "QueueUrl":
        return queue_does_not_exist()
    if name == "QueueName":
        return invalid_parameter("Value for parameter QueueName is invalid. Reason: Must specify a queue name.")
    shown = "Attribute.Name" if name in ("Attribute", "Attributes") else name
    return SqsError(ErrorKind.MISSING_PARAMETER, f"The request must contain the parameter {shown}.")


def invalid_attribute_value(message: str) -> SqsError:
    """Return an InvalidAttributeValue error."""
    return SqsError(ErrorKind.INVALID_ATTRIBUTE_VALUE, message)


def queue_does_not_exist() -> SqsError:
    """Return a QueueDoesNotExist error with AWS's text."""
    return SqsError(ErrorKind.QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")


def receipt_handle_is_invalid(handle: str) -> SqsError:
    """Return a ReceiptHandleIsInvalid error, the same whatever is wrong with the handle."""
    return SqsError(
        ErrorKind.RECEIPT_HANDLE_IS_INVALID,
        f'The input receipt handle "{handle[:_ECHOED_CHARS]}" is not a valid receipt handle.',
    )


def not_for_this_kind(parameter: str, value: object) -> SqsError:
    """Return an InvalidParameterValue error for a parameter that only the other kind of queue has."""
    return invalid_parameter(
        f"Value {value} for parameter {parameter} is invalid. "
        "Reason: The request include parameter that is not valid for this queue type."
    )
