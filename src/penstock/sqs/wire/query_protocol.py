"""AWS's older Query protocol: form parameters in, XML out."""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import TypeVar

from penstock.http.server import Headers
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, missing_parameter
from penstock.sqs.model import REQUESTS, EmptyResponse, ReceiveMessageRequest, Shape
from penstock.sqs.wire import form
from penstock.sqs.wire.form import Parameters
from penstock.sqs.wire.protocol import answer_headers, refusal_headers
from penstock.sqs.wire.query_names import FieldKind, QueryField, fields_of
from penstock.sqs.wire.xml import DECLARATION, element, write_fields

T = TypeVar("T")
CONTENT_TYPE = b"text/xml"
_EMPTY_RESULT = 3  # the declaration and two opening tags
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")
_INT32 = range(-(2**31), 2**31)
# Actions on no queue in particular, which AWS does not take at the URL of one; for GetQueueUrl it does.
_NOT_AT_A_QUEUE = frozenset({"CreateQueue", "ListQueues"})
# AWS documents Name for attributes and Key for tags; some of its older clients write the others.
_KEY_NAMES = ("Name", "Key", "key", "name")
_VALUE_NAMES = ("Value", "value")
_COLLECTIONS = frozenset({FieldKind.TEXTS, FieldKind.BINARIES, FieldKind.TEXT_MAP, FieldKind.SHAPE_MAP})


def parse(query_string: bytes, body: bytes, path_queue_url: str | None = None) -> tuple[str, Shape]:
    """Return the action and its request; `path_queue_url` is the queue if no parameter names one."""
    parameters = form.read(query_string, body)
    action = parameters.texts.get("Action")
    if not action:
        if query_string or body:
            raise SqsError(ErrorKind.MISSING_ACTION, "The request must contain the parameter Action.")
        raise SqsError(ErrorKind.UNKNOWN_OPERATION, "The request has no parameters.")
    shape = REQUESTS.get(action)
    if shape is None or (path_queue_url is not None and action in _NOT_AT_A_QUEUE):
        raise SqsError(ErrorKind.INVALID_ACTION, f"The action {action[:100]} is not valid for this endpoint.")
    if path_queue_url is not None:
        parameters.texts.setdefault("QueueUrl", path_queue_url)
    request = _read(shape, fields_of(shape, action), parameters, "")
    if isinstance(request, ReceiveMessageRequest) and request.attribute_names:
        # In this protocol, AWS answers the older of the two parameters.
        request.message_system_attribute_names = []
    return action, request


def encode(action: str, response: Shape, request_id: str) -> bytes:
    """Return the body of an answer."""
    parts = [DECLARATION, f'<{action}Response xmlns="{NAMESPACE}">']
    if not isinstance(response, EmptyResponse):
        parts.append(f"<{action}Result>")
        write_fields(parts, response, fields_of(type(response), action))
        if len(parts) > _EMPTY_RESULT:
            parts.append(f"</{action}Result>")
        else:
            parts[-1] = f"<{action}Result/>"
    parts.append(f"<ResponseMetadata>{element('RequestId', request_id)}</ResponseMetadata></{action}Response>")
    return "".join(parts).encode()


def encode_error(error: SqsError, request_id: str) -> bytes:
    """Return the body of an error."""
    if error.kind is ErrorKind.UNKNOWN_OPERATION:
        return b"<UnknownOperationException/>\n"
    fault = element("Type", "Sender" if error.kind.sender_fault else "Receiver")
    code = element("Code", error.kind.query_code)
    details = f"<Error>{fault}{code}{element('Message', message_of(error))}<Detail/></Error>"
    answer = f'<ErrorResponse xmlns="{NAMESPACE}">{details}{element("RequestId", request_id)}</ErrorResponse>'
    return (DECLARATION + answer).encode()


def message_of(error: SqsError) -> str:
    """Return the text of an error; that of a queue which does not exist is another one in this protocol."""
    if error.kind is ErrorKind.QUEUE_DOES_NOT_EXIST:
        return "The specified queue does not exist for this wsdl version."
    return error.message


def headers(request_id: str) -> Headers:
    """Return the headers of an answer."""
    return answer_headers(CONTENT_TYPE, request_id)


def error_headers(error: SqsError, request_id: str) -> Headers:
    """Return the headers of an error."""
    return refusal_headers(CONTENT_TYPE, request_id, error)


def _read(shape: type[Shape], fields: Iterable[QueryField], level: Parameters, prefix: str) -> Shape:
    values: dict[str, object] = {}
    for field in fields:
        value = _READERS[field.kind](field, level, prefix)
        if value is not None:
            values[field.attribute] = value
        elif field.required:
            raise missing_parameter(prefix + (field.model_name if field.kind in _COLLECTIONS else field.name))
    return shape(**values)


def _text(field: QueryField, level: Parameters, prefix: str) -> str | None:
    return level.texts.get(field.name)


def _integer(field: QueryField, level: Parameters, prefix: str) -> int | None:
    text = level.texts.get(field.name)
    if text is None:
        return None
    if _INTEGER.fullmatch(text) is None or (number := int(text)) not in _INT32:
        raise _malformed(f"{prefix}{field.name} is not an integer: {text[:100]!r}.")
    return number


def _binary(field: QueryField, level: Parameters, prefix: str) -> bytes | None:
    text = level.texts.get(field.name)
    return None if text is None else _from_base64(text, prefix + field.name)


def _texts(field: QueryField, level: Parameters, prefix: str) -> list[str] | None:
    found = [level.texts[field.name]] if field.name in level.texts else []
    if (elements := level.nested.get(field.name)) is not None:
        found += [elements.texts[index] for index in _in_order(elements.texts, prefix + field.name)]
    if not found and level.texts.get(field.model_name) == "":
        return [""]  # so botocore writes an empty list, which AWS reads as one of an empty text
    return found or None


def _binaries(field: QueryField, level: Parameters, prefix: str) -> list[bytes] | None:
    texts = _texts(field, level, prefix)
    return None if texts is None else [_from_base64(text, prefix + field.name) for text in texts]


def _shapes(field: QueryField, level: Parameters, prefix: str) -> list[Shape]:
    """Return the entries of a batch. A missing list is an empty one, for which AWS has its own error."""
    elements = level.nested.get(field.name)
    if elements is None:
        return []
    place, fields = prefix + field.name, fields_of(field.item)
    order = _in_order(elements.nested, place)
    return [_read(field.item, fields, elements.nested[index], f"{place}.{index}.") for index in order]


def _text_map(field: QueryField, level: Parameters, prefix: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for key, entry, place in _map_entries(field, level, prefix):
        value = _first(entry.texts, _VALUE_NAMES)
        if value is None:
            raise missing_parameter(f"{place}.Value")
        found[_fresh(key, found, place)] = value
    return found or None


def _shape_map(field: QueryField, level: Parameters, prefix: str) -> dict[str, Shape] | None:
    found: dict[str, Shape] = {}
    fields = fields_of(field.item)
    for key, entry, place in _map_entries(field, level, prefix):
        value = _first(entry.nested, _VALUE_NAMES)
        if value is None:
            raise missing_parameter(f"{place}.Value")
        found[_fresh(key, found, place)] = _read(field.item, fields, value, f"{place}.Value.")
    return found or None


def _map_entries(field: QueryField, level: Parameters, prefix: str) -> Iterator[tuple[str, Parameters, str]]:
    """Yield key, entry and dotted name; a single pair may have no index (Attribute.Name=...)."""
    entries = level.nested.get(field.name)
    if entries is None:
        return
    place = prefix + field.name
    if (bare := _first(entries.texts, _KEY_NAMES)) is not None:
        yield bare, entries, place
    for index in _in_order((name for name in entries.nested if name not in _VALUE_NAMES), place):
        entry = entries.nested[index]
        key = _first(entry.texts, _KEY_NAMES)
        if key is None:
            raise missing_parameter(f"{place}.{index}.{field.key}")
        yield key, entry, f"{place}.{index}"


_READERS: dict[FieldKind, Callable[[QueryField, Parameters, str], object]] = {
    FieldKind.TEXT: _text,
    FieldKind.INTEGER: _integer,
    FieldKind.BINARY: _binary,
    FieldKind.TEXTS: _texts,
    FieldKind.BINARIES: _binaries,
    FieldKind.SHAPES: _shapes,
    FieldKind.TEXT_MAP: _text_map,
    FieldKind.SHAPE_MAP: _shape_map,
}


def _in_order(indexes: Iterable[str], place: str) -> list[str]:
    """Return the indexes in numeric order; gaps do not matter."""
    known = list(indexes)
    for index in known:
        if not (index.isascii() and index.isdigit() and len(index) <= 10):
            raise _malformed(f"{place}.{index[:20]} has no number as its index.")
    return sorted(known, key=int)


def _first(entries: Mapping[str, T], names: Iterable[str]) -> T | None:
    return next((entries[name] for name in names if name in entries), None)


def _fresh(key: str, found: Container[str], place: str) -> str:
    if key in found:
        raise invalid_parameter(f"{place}: the name {key[:100]!r} is given twice.")
    return key


def _from_base64(text: str, place: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _malformed(f"{place} is not base64.") from None


def _malformed(message: str) -> SqsError:
    return SqsError(ErrorKind.SERIALIZATION, message)
