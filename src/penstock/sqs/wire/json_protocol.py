"""AWS JSON 1.0: `X-Amz-Target: AmazonSQS.<Action>`, a JSON object each way."""

import re

import msgspec

from penstock.http.server import Headers
from penstock.sqs.errors import ErrorKind, SqsError, missing_parameter
from penstock.sqs.model import REQUESTS, EmptyResponse, Shape
from penstock.sqs.wire.protocol import answer_headers, refusal_headers

CONTENT_TYPE = b"application/x-amz-json-1.0"

_ACTIONS: dict[bytes | str, str] = {
    target: action for action in REQUESTS for target in (f"AmazonSQS.{action}", f"AmazonSQS.{action}".encode())
}
_DECODE = {action: msgspec.json.Decoder(shape).decode for action, shape in REQUESTS.items()}
_encode = msgspec.json.Encoder().encode

_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.?(.*)`)?")
_MISPLACED = re.compile(r"(.*) - at `\$\.?(.*)`")
_INDEX = re.compile(r"\[(\d+)\]")


def action_of(target: bytes | str) -> str:
    """Return the action that the X-Amz-Target header names."""
    action = _ACTIONS.get(target)
    if action is None:
        shown = target.decode("latin-1") if isinstance(target, bytes) else target
        raise SqsError(ErrorKind.INVALID_ACTION, f"The target {shown[:100]!r} is not valid for this web service.")
    return action


def decode(action: str, body: bytes) -> Shape:
    """Return the request in a body."""
    try:
        return _DECODE[action](body or b"{}")
    except msgspec.ValidationError as error:
        if "got `null`" not in str(error):
            raise _refusal(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None
    return _decode_with_nulls(action, body)


def encode(action: str, response: Shape, request_id: str) -> bytes:
    """Return the body of an answer; as on AWS, an action that returns nothing has an empty one."""
    return b"" if response.__class__ is EmptyResponse else _encode(response)


def encode_error(error: SqsError, request_id: str) -> bytes:
    """Return the body of an error."""
    # A message may quote half a surrogate pair, which UTF-8 cannot carry.
    message = error.message.encode("utf-8", "replace").decode()
    return _encode({"__type": error.kind.json_type, "message": message})


def headers(request_id: str) -> Headers:
    """Return the headers of an answer."""
    return answer_headers(CONTENT_TYPE, request_id)


def error_headers(error: SqsError, request_id: str) -> Headers:
    """Return the headers of an error, with the code that clients of the Query protocol know."""
    fault = "Sender" if error.kind.sender_fault else "Receiver"
    legacy = f"{error.kind.query_code};{fault}".encode()
    return [
        *refusal_headers(CONTENT_TYPE, request_id, error),
        (b"x-amzn-errortype", error.kind.json_type.encode()),
        (b"x-amzn-query-error", legacy),
    ]


def _decode_with_nulls(action: str, body: bytes) -> Shape:
    """Decode a body with null fields: AWS treats null as not sent, and some clients write it."""
    try:
        return _DECODE[action](_encode(_without_nulls(msgspec.json.decode(body))))
    except msgspec.ValidationError as error:
        raise _refusal(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _refusal(error: msgspec.ValidationError) -> SqsError:
    text = str(error)
    if missing := _MISSING.fullmatch(text):
        name, place = missing.groups()
        return missing_parameter(f"{_dotted(place)}.{name}" if place else name)
    if misplaced := _MISPLACED.fullmatch(text):
        reason, place = misplaced.groups()
        return SqsError(ErrorKind.SERIALIZATION, f"{_dotted(place)}: {reason}.")
    return SqsError(ErrorKind.SERIALIZATION, f"The request body cannot be read: {text}.")


def _dotted(place: str) -> str:
    """Return the path as AWS writes it, with entries counted from 1: Entries[0].Id is Entries.1.Id."""
    return _INDEX.sub(lambda index: f".{int(index[1]) + 1}", place).replace("[...]", "")


def _malformed(error: Exception) -> SqsError:
    reason = {
        UnicodeDecodeError: "it is not UTF-8",
        RecursionError: "it is nested too deeply",
    }.get(type(error), str(error))
    return SqsError(ErrorKind.SERIALIZATION, f"The request body is not valid JSON: {reason}.")
