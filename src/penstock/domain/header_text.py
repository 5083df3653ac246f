"""Text in the values of headers: percent-encoded, as CloudEvents' HTTP binding does it."""

from urllib.parse import quote, unquote

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
