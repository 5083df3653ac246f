"""Text in the values of headers: percent-encoded, as CloudEvents' HTTP binding does it."""

from collections.abc import Mapping
from urllib.parse import quote, unquote

BINARY_HEADER = "ce-specversion"
"""The header that a CloudEvent in binary mode has: its attributes are headers, its data is the body."""

_PREFIX = "ce-"
# Visible ASCII without the quotation mark and the percent sign; `quote` never touches letters, digits and `_.-~`.
_PLAIN = "!#$&'()*+,/:;<=>?@[\\]^`{|}"


def percent_encoded(text: str) -> str:
    """Return text as the value of a header."""
    return quote(text, safe=_PLAIN, errors="replace")


def percent_decoded(value: str) -> str:
    """Return the text of a header's value; one that is not percent-encoded UTF-8 stays as it is."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value


def attribute_headers(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of CloudEvents' attributes."""
    return {_PREFIX + name: percent_encoded(value) for name, value in attributes.items()}


def attributes_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the CloudEvents attributes in headers, whose names are lower-case."""
    return {
        name.removeprefix(_PREFIX): percent_decoded(value)
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    }
