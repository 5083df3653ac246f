"""Times as people give them: ISO 8601, a day, or how long ago."""

import re
from datetime import UTC, datetime

import typer

_AGO = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, now_ms: int, option: str) -> int:
    """`2030-01-01T09:00:00Z`, `2030-01-01` (UTC), or `24h`, which is so long before now."""
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2030-01-01T09:00:00Z, 2030-01-01, or 24h for a day ago", param_hint=option
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str, option: str) -> int:
    """`500ms`, `2s` or `1m`."""
    if text.endswith("ms") and text[:-2].isdecimal():
        return int(text[:-2])
    if length := _AGO.fullmatch(text):
        return int(length[1]) * _UNIT_MS[length[2]]
    raise typer.BadParameter(f"{text!r} is no duration: write 500ms, 2s or 1m", param_hint=option)
