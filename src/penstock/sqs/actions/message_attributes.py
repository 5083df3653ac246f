"""Message attributes: their checks, their size, the MD5s that clients verify, and which ones a receive returns."""

import hashlib
import re
from collections.abc import Iterable, Mapping

from penstock.domain.message import AttributeValue, TypedValue
from penstock.sqs.actions.contents import encoded
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter
from penstock.sqs.model import MessageAttributes, MessageAttributeValue

try:
    from _md5 import md5 as _own_md5  # type: ignore[import-not-found]
except ImportError:  # an interpreter built to take every digest from OpenSSL
    _own_md5 = hashlib.md5

MAX_ATTRIBUTES = 10
MAX_NAME_CHARS = 256
MAX_TYPE_CHARS = 256
TRACE_HEADER = "AWSTraceHeader"

_NAME = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_KINDS = ("String", "Number", "Binary")
_RESERVED = ("aws.", "amazon.")
_EVERYTHING = frozenset({"All", ".*", "*"})

# How the canonical form marks text and binary values.
_AS_TEXT = b"\x01"
_AS_BINARY = b"\x02"

# Below this size, the interpreter's own digest is done before OpenSSL has set one up.
_SHORT_BYTES = 2048


def check_no_lists(action: str, attributes: MessageAttributes) -> None:
    """Refuse the whole request if an attribute has a list, even an empty one: AWS reserves them."""
    for value in attributes.values():
        if value.string_list_values is not None or value.binary_list_values is not None:
            raise SqsError(
                ErrorKind.UNSUPPORTED_OPERATION,
                f"Message attribute list values in {action} operation are not supported.",
            )


def checked_attributes(attributes: MessageAttributes) -> dict[str, TypedValue]:
    """Check the attributes of a message to send; InvalidParameterValue names a wrong one."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{MAX_ATTRIBUTES}]."
        )
    for name in attributes:
        _check_name(name)
    return {name: _read(name, value, "user") for name, value in attributes.items()}


def trace_header(attributes: MessageAttributes) -> dict[str, TypedValue]:
    """Check the system attributes of a message to send; AWSTraceHeader, a String, is the only one a sender may set."""
    for name in attributes:
        if name != TRACE_HEADER:
            raise invalid_parameter(
                f"Message system attribute name '{name[:MAX_NAME_CHARS]}' is invalid. Message system attributes must "
                f"be one of: {TRACE_HEADER}."
            )
        if attributes[name].data_type != "String":
            raise invalid_parameter(f"The type of message (system) attribute '{name}' must be String.")
    return {name: _read(name, value, "system") for name, value in attributes.items()}


def shown(attributes: Mapping[str, AttributeValue]) -> MessageAttributes:
    """Return the attributes of a received message."""
    return {name: _shown(_typed(value)) for name, value in attributes.items()}


def size_of(attributes: Mapping[str, AttributeValue]) -> int:
    """Return what attributes count towards a message's size: name, type and value."""
    size = 0
    for name, value in attributes.items():
        typed = _typed(value)
        size += len(name.encode()) + len(typed.type.encode()) + len(typed.value)
    return size


def md5_of(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the MD5 that clients verify: of names in order, each followed by type, transport and value."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        typed = _typed(attributes[name])
        digest.update(_counted(name.encode()))
        digest.update(_counted(typed.type.encode()))
        digest.update(_AS_BINARY if _is_binary(typed.type) else _AS_TEXT)
        digest.update(_counted(typed.value))
    return digest.hexdigest()


def body_md5(body: bytes) -> str:
    """Return the MD5 of a message body in hexadecimal."""
    md5 = _own_md5 if len(body) < _SHORT_BYTES else hashlib.md5
    return str(md5(body, usedforsecurity=False).hexdigest())


def chosen(attributes: Mapping[str, AttributeValue], names: Iterable[str]) -> dict[str, AttributeValue]:
    """Return the attributes that a receive asked for: all, by name, or by prefix (`bar.*`, `bar*`)."""
    exact = set(names)
    if not attributes or not exact:
        return {}
    if exact & _EVERYTHING:
        return dict(attributes)
    prefixes = tuple(name[:-1].removesuffix(".") for name in exact if name.endswith("*"))
    return {name: value for name, value in attributes.items() if name in exact or name.startswith(prefixes)}


def _check_name(name: str) -> None:
    if not name:
        raise invalid_parameter("The request must contain non-empty message (user) attribute names.")
    if len(name) > MAX_NAME_CHARS:
        raise invalid_parameter(f"Message (user) attribute name must be shorter than {MAX_NAME_CHARS} bytes.")
    if _NAME.fullmatch(name) is None:
        raise invalid_parameter(
            f"Message (user) attribute name '{name}' is invalid. It can only contain alphanumeric characters, "
            "underscores, hyphens and periods."
        )
    if name.lower().startswith(_RESERVED):
        raise invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. These strings are reserved "
            "for internal use."
        )
    if name.startswith("."):
        raise invalid_parameter("Message (user) attribute name must not begin with character '.'.")
    if name.endswith("."):
        raise invalid_parameter("Message (user) attribute name must not end with character '.'.")
    if ".." in name:
        raise invalid_parameter("Message (user) attribute name must not have successive '.' characters.")


def _read(name: str, value: MessageAttributeValue, owner: str) -> TypedValue:
    what = f"({owner}) attribute '{name}'"
    if not value.data_type:
        lacks = "type" if value.string_value or value.binary_value else "value"
        raise invalid_parameter(f"The message {what} must contain a non-empty message attribute {lacks}.")
    kind, dot, label = value.data_type.partition(".")
    if kind not in _KINDS or (dot and not label) or encoded(label) is None:
        raise invalid_parameter(
            f"The type of message {what} is invalid. You must use only the following supported type prefixes: "
            "Binary, Number, String."
        )
    if len(value.data_type) > MAX_TYPE_CHARS:
        raise invalid_parameter(f"Message ({owner}) attribute type must be shorter than {MAX_TYPE_CHARS} bytes.")
    if value.string_value and value.binary_value:
        raise invalid_parameter(f"Message {what} must have a single value.")
    data = value.binary_value if kind == "Binary" else _encoded_text(what, value.string_value or "")
    if not data:
        raise invalid_parameter(f"Message {what} must contain a non-empty value of type '{kind}'.")
    if kind == "Number" and _NUMBER.fullmatch(value.string_value or "") is None:
        raise invalid_parameter(f"Can't cast the value of message {what} to a number.")
    return TypedValue(value.data_type, data)


def _encoded_text(what: str, text: str) -> bytes:
    data = encoded(text)
    if data is None:
        raise invalid_parameter(
            f"Invalid characters found in message {what}. Valid unicode characters are "
            "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
        )
    return data


def _typed(value: AttributeValue) -> TypedValue:
    return TypedValue("String", value.encode()) if isinstance(value, str) else value


def _shown(typed: TypedValue) -> MessageAttributeValue:
    if _is_binary(typed.type):
        return MessageAttributeValue(data_type=typed.type, binary_value=typed.value)
    return MessageAttributeValue(data_type=typed.type, string_value=typed.value.decode())


def _is_binary(data_type: str) -> bool:
    return data_type.startswith("Binary")


def _counted(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
