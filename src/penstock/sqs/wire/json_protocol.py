"""AWS JSON 1.0: `X-Amz-Target: AmazonSQS.<Action>`, a JSON object each way."""

import re

import msgspec
from msgspec import inspect

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
_WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(\w+)`")
_NOT_EXPECTED = {
    "object": "Start of structure or map found where not expected.",
    "array": "Start of list found where not expected.",
}


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
        return _decode_leniently(action, body, error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None


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


def _decode_leniently(action: str, body: bytes, problem: msgspec.ValidationError) -> Shape:
    """Decode as AWS does: null means not sent, and a number or a boolean may stand for a text."""
    try:
        value = msgspec.json.decode(body or b"{}")
    except msgspec.ValidationError:
        raise _refusal(action, problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(error) from None
    try:
        return _DECODE[action](_encode(_as_declared(value, inspect.type_info(REQUESTS[action]))))
    except msgspec.ValidationError as error:
        raise _refusal(action, error) from None


def _as_declared(value: object, declared: inspect.Type) -> object:
    """Return a value without nulls, and with texts where the type has them; what does not fit is left as it is."""
    match declared, value:
        case inspect.UnionType(types=(first, *_)), _:
            return _as_declared(value, first)
        case inspect.StrType(), bool() | int() | float():
            return _encode(value).decode()
        case inspect.ListType(item_type=item_type), list():
            return [_as_declared(item, item_type) for item in value if item is not None]
        case inspect.DictType(value_type=value_type), dict():
            return {key: _as_declared(item, value_type) for key, item in value.items() if item is not None}
        case inspect.StructType(fields=fields), dict():
            given = ((field, value.get(field.encode_name)) for field in fields)
            return {field.encode_name: _as_declared(item, field.type) for field, item in given if item is not None}
        case _:
            return value


def _refusal(action: str, error: msgspec.ValidationError) -> SqsError:
    text = str(error)
    if missing := _MISSING.fullmatch(text):
        name, place = missing.groups()
        return missing_parameter(f"{_dotted(action, place)}.{name}" if place else name)
    reason, place = text, ""
    if misplaced := _MISPLACED.fullmatch(text):
        reason, place = misplaced.groups()
    if wrong_type := _WRONG_TYPE.fullmatch(reason):
        expected, got = wrong_type.groups()
        if got in _NOT_EXPECTED:
            return SqsError(ErrorKind.SERIALIZATION, _NOT_EXPECTED[got])
        if got == "str" and expected.startswith("int"):
            return SqsError(ErrorKind.SERIALIZATION, "STRING_VALUE can not be converted to an Integer")
    if place:
        return SqsError(ErrorKind.SERIALIZATION, f"{_dotted(action, place)}: {reason}.")
    return SqsError(ErrorKind.SERIALIZATION, f"The request body cannot be read: {text}.")


def _dotted(action: str, place: str) -> str:
    """Return a path as AWS writes it, entries counted from 1: `Entries[0]` is `SendMessageBatchRequestEntry.1`."""
    path = _INDEX.sub(lambda index: f".{int(index[1]) + 1}", place).replace("[...]", "")
    return re.sub("^Entries", f"{action}RequestEntry", path)


def _malformed(error: Exception) -> SqsError:
    reason = {
        UnicodeDecodeError: "it is not UTF-8",
        RecursionError: "it is nested too deeply",
    }.get(type(error), str(error))
    return SqsError(ErrorKind.SERIALIZATION, f"The request body is not valid JSON: {reason}.")
