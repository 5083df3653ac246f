"""Times on the command line: one parser, and the option that every command with a time uses."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import typer

TIME, DAY = "TIME", "DAY"
"""What help calls an option that takes a time, and one that takes the day of a time."""

FORMS = "2030-01-31, 2030-01-31T09:00:00Z, 24h (ago), +2h (from now), now, today or yesterday"

_LENGTH = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def time_option(name: str, about: str, *others: str) -> Any:
    """Return an option that takes a time in any of the forms, as a moment; `others` are more names for it."""
    return typer.Option(
        name, *others, parser=moment_of, metavar=TIME, show_default=False, help=f"{about} {TIME} is {FORMS}."
    )


def day_option(name: str, about: str) -> Any:
    """Return an option that takes a day in UTC, or a time that is in it, as `2030-01-31`."""
    return typer.Option(name, parser=day_of, metavar=DAY, show_default=False, help=f"{about} {DAY} is {FORMS}.")


def moment_of(text: str) -> datetime:
    """Read a time; one without a zone is in UTC."""
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    try:
        if text in named:
            return named[text]
        if ago := _LENGTH.fullmatch(text):
            return now - _length(ago)
        if ahead := _LENGTH.fullmatch(text.removeprefix("+")):
            return now + _length(ahead)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is not a time: write {FORMS}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def day_of(text: str) -> str:
    """Read a time, and return its day in UTC."""
    return moment_of(text).astimezone(UTC).date().isoformat()


def epoch_ms(moment: datetime | None) -> int | None:
    """Return a moment in milliseconds since 1970."""
    return None if moment is None else round(moment.timestamp() * 1000)


def duration_ms(text: str, option: str) -> int:
    """Read a length of time: `500ms`, `2s` or `1m`."""
    if text.endswith("ms") and text[:-2].isdecimal():
        return int(text[:-2])
    if length := _LENGTH.fullmatch(text):
        return round(_length(length).total_seconds() * 1000)
    raise typer.BadParameter(f"{text!r} is not a duration: write 500ms, 2s or 1m", param_hint=option)


def _length(match: re.Match[str]) -> timedelta:
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
