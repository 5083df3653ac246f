"""The Query protocol's XML.

XML 1.0 cannot represent some characters (most controls, U+FFFE, U+FFFF, lone surrogates). They become U+FFFD, since
a client that cannot parse an answer would receive the same message again and again.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from penstock.sqs.model import Shape
from penstock.sqs.wire.query_names import FieldKind, QueryField, fields_of

DECLARATION = '<?xml version="1.0"?>'

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# A bare carriage return is read back as a line feed.
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\r", "&#13;"))


def escape(text: str) -> str:
    """Return the text as the content of an element."""
    for character, reference in _ESCAPES:
        if character in text:
            text = text.replace(character, reference)
    # Much faster than the expression, and never true for a forbidden character.
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _FORBIDDEN.sub("\ufffd", text)


def element(name: str, text: str) -> str:
    """Return an element that contains text."""
    return f"<{name}>{escape(text)}</{name}>"


def write_fields(parts: list[str], shape: Shape, fields: Iterable[QueryField]) -> None:
    """Append the elements of a shape's fields to `parts`; fields that are not set are left out."""
    for field in fields:
        value = getattr(shape, field.attribute)
        if value is not None:
            _WRITERS[field.kind](parts, field, value)


def _base64(value: object) -> str:
    return b64encode(cast(bytes, value)).decode()


def _boolean(value: object) -> str:
    return "true" if value else "false"


def _one(as_text: Callable[[object], str], parts: list[str], field: QueryField, value: object) -> None:
    parts.append(element(field.name, as_text(value)))


def _each(as_text: Callable[[object], str], parts: list[str], field: QueryField, values: object) -> None:
    parts.extend(element(field.name, as_text(value)) for value in cast(list[object], values))


def _shapes(parts: list[str], field: QueryField, values: object) -> None:
    fields = fields_of(field.item)
    for value in cast(list[Shape], values):
        parts.append(f"<{field.name}>")
        write_fields(parts, value, fields)
        parts.append(f"</{field.name}>")


def _text_map(parts: list[str], field: QueryField, values: object) -> None:
    for key, value in cast(dict[str, str], values).items():
        parts.append(f"<{field.name}>{element(field.key, key)}{element('Value', value)}</{field.name}>")


def _shape_map(parts: list[str], field: QueryField, values: object) -> None:
    fields = fields_of(field.item)
    for key, value in cast(dict[str, Shape], values).items():
        parts.append(f"<{field.name}>{element(field.key, key)}<Value>")
        write_fields(parts, value, fields)
        parts.append(f"</Value></{field.name}>")


_WRITERS: dict[FieldKind, Callable[[list[str], QueryField, object], None]] = {
    FieldKind.TEXT: partial(_one, str),
    FieldKind.INTEGER: partial(_one, str),
    FieldKind.FLAG: partial(_one, _boolean),
    FieldKind.BINARY: partial(_one, _base64),
    FieldKind.TEXTS: partial(_each, str),
    FieldKind.BINARIES: partial(_each, _base64),
    FieldKind.SHAPES: _shapes,
    FieldKind.TEXT_MAP: _text_map,
    FieldKind.SHAPE_MAP: _shape_map,
}
