"""The answers of the Query protocol as JSON, for clients that accept nothing else.

The answer has the structure of the XML: an element for the response, one for the result, and metadata. Lists have the
names of the service model with a small first letter, and maps are lists of names and values.
"""

from base64 import b64encode
from typing import cast

import msgspec

from penstock.http.server import Headers
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.model import EmptyResponse, Shape
from penstock.sqs.wire import query_protocol
from penstock.sqs.wire.protocol import answer_headers, refusal_headers
from penstock.sqs.wire.query_names import FieldKind, QueryField, fields_of

CONTENT_TYPE = b"application/json"

_LISTS = {"Message": "messages", "QueueUrl": "queueUrls"}
_MAPS = {"Attribute": "Attributes", "MessageAttribute": "MessageAttributes", "Tag": "Tags"}
_encode = msgspec.json.Encoder().encode


def encode(action: str, response: Shape, request_id: str) -> bytes:
    """Return the body of an answer."""
    content: dict[str, object] = {"ResponseMetadata": {"RequestId": request_id}}
    if not isinstance(response, EmptyResponse):
        content[f"{action}Result"] = _object(response, fields_of(type(response), action))
    return _encode({f"{action}Response": content})


def encode_error(error: SqsError, request_id: str) -> bytes:
    """Return the body of an error."""
    if error.kind is ErrorKind.UNKNOWN_OPERATION:
        return query_protocol.encode_error(error, request_id)
    fault = "Sender" if error.kind.sender_fault else "Receiver"
    message = query_protocol.message_of(error).encode("utf-8", "replace").decode()
    details = {"Type": fault, "Code": error.kind.query_code, "Message": message, "Detail": None}
    return _encode({"Error": details, "RequestId": request_id})


def headers(request_id: str) -> Headers:
    """Return the headers of an answer."""
    return answer_headers(CONTENT_TYPE, request_id)


def error_headers(error: SqsError, request_id: str) -> Headers:
    """Return the headers of an error."""
    if error.kind is ErrorKind.UNKNOWN_OPERATION:
        return query_protocol.error_headers(error, request_id)
    return refusal_headers(CONTENT_TYPE, request_id, error)


def _object(shape: Shape, fields: tuple[QueryField, ...]) -> dict[str, object]:
    return {_name(field): _value(field, getattr(shape, field.attribute)) for field in fields}


def _name(field: QueryField) -> str:
    if field.kind in (FieldKind.TEXT_MAP, FieldKind.SHAPE_MAP):
        return _MAPS[field.name]
    return _LISTS.get(field.name, field.name) if field.kind in (FieldKind.TEXTS, FieldKind.SHAPES) else field.name


def _value(field: QueryField, value: object) -> object:
    if value in (None, [], {}):
        return None
    match field.kind:
        case FieldKind.BINARY:
            return b64encode(cast(bytes, value)).decode()
        case FieldKind.SHAPES:
            return [_object(each, fields_of(field.item)) for each in cast(list[Shape], value)]
        case FieldKind.TEXT_MAP:
            return [{field.key: key, "Value": text} for key, text in cast(dict[str, str], value).items()]
        case FieldKind.SHAPE_MAP:
            return [
                {field.key: key, "Value": _object(each, fields_of(field.item))}
                for key, each in cast(dict[str, Shape], value).items()
            ]
        case _:
            return value
