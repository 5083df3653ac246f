"""Texts that `penstock queue` reads and shows."""

from collections.abc import Sequence
from datetime import UTC, datetime

import typer


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """The KEY=VALUE texts of a repeated option."""
    split = [text.partition("=") for text in texts or ()]
    for key, equals, value in split:
        if not key or not equals:
            raise typer.BadParameter(f"{key + equals + value!r} is not of the form KEY=VALUE", param_hint=option)
    return {key: value for key, _, value in split}


def name_of(name_or_url: str) -> str:
    """The queue's name in what was given as one."""
    return name_or_url.rpartition("/")[2]


def printable(text: str) -> str:
    """One line that a terminal shows as it is: a message may hold line ends, or codes that move the cursor."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def moment(epoch_ms: int) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def messages(count: int) -> str:
    """How many messages, in words."""
    return f"{count} {'message' if count == 1 else 'messages'}"
