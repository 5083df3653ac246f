"""CloudEvents' binary mode: attributes in `ce-` headers, data in the body. It is checked as the JSON form is."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from penstock.domain.errors import InvalidArgument
from penstock.domain.event import attributes_in, is_json

_BYTES = "application/octet-stream"
_NOT_IN_HEADERS = ("data", "data_base64", "datacontenttype")


def json_form(headers: Mapping[str, str], content: bytes) -> bytes:
    """Return the JSON form of an event in binary mode; InvalidArgument if its data is not of its content type."""
    attributes: dict[str, object] = {**attributes_in(headers)}
    misplaced = [name for name in _NOT_IN_HEADERS if name in attributes]
    if misplaced:
        raise InvalidArgument(f"`ce-{misplaced[0]}` is not a header: data is the body, and its type is Content-Type")
    if content:
        content_type = headers.get("content-type", _BYTES)
        if is_json(content_type):
            _check_json(content)
        attributes |= {"datacontenttype": content_type, "data_base64": content}
    return msgspec.json.encode(attributes)


def _check_json(content: bytes) -> None:
    try:
        msgspec.json.decode(content, type=Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON, as its Content-Type says: {error}") from None
