"""The Retry-After header (RFC 9110, 10.2.3): a number of seconds, or the date from which to try again."""

from datetime import UTC
from email.utils import parsedate_to_datetime

from penstock.core.limits import SECOND_MS
from penstock.core.outcome import MAX_DELAY_S

# More digits than any delay has; Python refuses to convert a few thousand of them.
_MAX_DIGITS = 9
# Longer than any of the three forms of an HTTP date.
_MAX_DATE_CHARS = 64


def retry_after_s(header: str, now_ms: int) -> int | None:
    """Whole seconds to wait, 1 to 43,200; None if the header says nothing that can be read."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return MAX_DELAY_S if len(text) > _MAX_DIGITS else clamped_s(int(text))
    date_ms = _http_date_ms(text)
    return None if date_ms is None else clamped_s(-((now_ms - date_ms) // SECOND_MS))


def clamped_s(delay_s: int) -> int:
    """The delay, brought into what a queue can do."""
    return min(max(delay_s, 1), MAX_DELAY_S)


def _http_date_ms(text: str) -> int | None:
    if len(text) > _MAX_DATE_CHARS:
        return None
    try:
        date = parsedate_to_datetime(text)
        # One of the three forms names no zone; all of them mean UTC.
        return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()) * SECOND_MS
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
