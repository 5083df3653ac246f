"""The kinds of values that settings have; each knows what it allows."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from penstock.ops.telemetry import MASK, is_secret_name, mask_secrets, mask_whole_url

T = TypeVar("T")
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)
Network = IPv4Network | IPv6Network
Plain = str | int | float | bool | list[str] | None


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of value; `check` and `parse` raise ValueError or TypeError for what is not allowed."""

    allowed: str  # ends the sentence "give …"
    check: Callable[[object], T]  # from a TOML value
    parse: Callable[[str], T]  # from the text of an environment variable
    plain: Callable[[T], Plain]  # to a TOML or JSON value that is safe to show


def line() -> Kind[str]:
    """Return the kind of any text on one line."""
    return Kind("text on one line", _line, _line, str)


def host() -> Kind[str]:
    """Return the kind of a host name or address, without scheme, port or path."""

    def check(value: object) -> str:
        return _require(_line(value), lambda name: re.fullmatch(r"[\w.:%-]+", name) is not None)

    return Kind("a host name or an IP address, such as 127.0.0.1", check, check, str)


def origins() -> Kind[str]:
    """Return the kind of several origins of web pages, or none."""

    def check(value: object) -> str:
        origin = r"https?://[A-Za-z0-9.*-]+(:[0-9]{1,5})?"
        return _require(_line(value), lambda text: all(re.fullmatch(origin, each) for each in text.split()))

    return Kind("origins such as https://shop.example, separated by spaces, or nothing", check, check, str)


def hours() -> Kind[str]:
    """Return the kind of a period of the day, such as 22:00-07:00, or empty."""

    def check(value: object) -> str:
        clock = r"([01]\d|2[0-3]):[0-5]\d"
        return _require(_line(value), lambda text: not text or re.fullmatch(f"{clock}-{clock}", text) is not None)

    return Kind("a period such as 22:00-07:00, or nothing", check, check, str)


def time_zone() -> Kind[str]:
    """Return the kind of a time zone's name."""

    def check(value: object) -> str:
        return _require(_line(value), lambda name: name == "UTC" or name in available_timezones())

    return Kind("a time zone such as UTC or Europe/Berlin", check, check, str)


def directory() -> Kind[Path]:
    """Return the kind of a directory's path, which need not exist yet."""

    def check(value: object) -> Path:
        path = _require(_line(value), bool)
        try:
            return Path(path).expanduser()
        except RuntimeError as error:  # a user that does not exist, or one without a home
            raise ValueError(path) from error

    def plain(path: Path) -> Plain:
        return str(path) if path.is_absolute() or str(path).startswith(".") else f"./{path}"

    return Kind("a directory's path; ~ is the home directory", check, check, plain)


def integer(least: int, most: int) -> Kind[int]:
    """Return the kind of a whole number within a range."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError("not a whole number")
        return _require(value, lambda number: least <= number <= most)

    return Kind(f"a whole number from {least} to {most}", check, lambda text: check(int(text)), int)


def power_of_two(most: int) -> Kind[int]:
    """Return the kind of a power of two: 1, 2, 4 and so on."""

    def check(value: object) -> int:
        return _require(integer(1, most).check(value), lambda number: number & (number - 1) == 0)

    return Kind(f"a power of two from 1 to {most}", check, lambda text: check(int(text)), int)


# A comma before the next NAME=, and not one between the hosts of a URL.
_ENTRY_END = re.compile(r",(?=\s*(?:[A-Za-z0-9_-]+=|$))")


def named_databases() -> Kind[tuple[str, ...]]:
    """Return the kind of a list of NAME=PATH (SQLite) or NAME=URL (PostgreSQL); passwords are never shown."""

    def entry(value: object) -> str:
        text = _line(value)
        name, _, place = text.partition("=")
        _require(name, lambda given: re.fullmatch(r"[A-Za-z0-9_-]+", given) is not None)
        return _require(text, lambda _: bool(place))

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        entries = tuple(entry(given) for given in value)
        names = [given.partition("=")[0] for given in entries]
        return _require(entries, lambda _: len(set(names)) == len(names))

    def parse(text: str) -> tuple[str, ...]:
        return check([given.strip() for given in _ENTRY_END.split(text) if given.strip()])

    def plain(entries: tuple[str, ...]) -> Plain:
        split = (given.partition("=") for given in entries)
        return [f"{name}={mask_whole_url(place) if '://' in place else place}" for name, _, place in split]

    allowed = "a list such as a=/disks/a/sqs.db, b=postgresql://db/sqs, each name once"
    return Kind(allowed, check, parse, plain)


def places() -> Kind[tuple[str, ...]]:
    """Return the kind of a list of URLs or files; passwords are never shown."""

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        return tuple(_require(_line(place), lambda given: bool(given.strip())) for place in value)

    def parse(text: str) -> tuple[str, ...]:
        return check([place.strip() for place in text.split(",") if place.strip()])

    allowed = "a list of URLs or files (separated by commas in the environment)"
    return Kind(allowed, check, parse, lambda given: [mask_whole_url(place) for place in given])


def pairs() -> Kind[tuple[str, ...]]:
    """Return the kind of a list of KEY=VALUE; values of secrets are never shown."""

    def entry(value: object) -> str:
        return _require(_line(value), lambda given: re.match(r"[^=\s]+=", given) is not None)

    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        return tuple(entry(given) for given in value)

    def parse(text: str) -> tuple[str, ...]:
        return check([given.strip() for given in text.split(",") if given.strip()])

    def plain(entries: tuple[str, ...]) -> Plain:
        split = (given.partition("=") for given in entries)
        return [f"{key}={MASK if is_secret_name(key) else mask_secrets(value)}" for key, _, value in split]

    return Kind("a list of KEY=VALUE (separated by commas in the environment)", check, parse, plain)


def optional_integer(least: int, most: int) -> Kind[int | None]:
    """Return the kind of a whole number that may be unset: left out of TOML, empty in the environment."""
    inner = integer(least, most)
    return Kind(
        f"{inner.allowed}, or leave it out",
        inner.check,
        lambda text: inner.parse(text) if text.strip() else None,
        lambda number: number,
    )


def number(least: float, most: float) -> Kind[float]:
    """Return the kind of a number within a range, whole or not."""

    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError("not a number")
        return float(_require(value, lambda given: least <= given <= most))

    return Kind(f"a number from {least:g} to {most:g}", check, lambda text: check(float(text)), float)


def flag() -> Kind[bool]:
    """Return the kind of true or false."""
    words = {"true": True, "1": True, "false": False, "0": False}

    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError("not true or false")
        return value

    def parse(text: str) -> bool:
        return words[_require(text.strip().lower(), words.__contains__)]

    return Kind("true or false", check, parse, bool)


def choice(options: type[ChoiceT]) -> Kind[ChoiceT]:
    """Return the kind of one of a few words."""

    def check(value: object) -> ChoiceT:
        return options(_line(value))

    return Kind(f"one of {', '.join(options)}", check, check, str)


def networks() -> Kind[tuple[Network, ...]]:
    """Return the kind of a list of networks in CIDR notation."""

    def check(value: object) -> tuple[Network, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        return tuple(ip_network(_line(entry)) for entry in value)

    def parse(text: str) -> tuple[Network, ...]:
        return check([entry.strip() for entry in text.split(",") if entry.strip()])

    allowed = "a list of networks such as 10.0.0.0/8 (no host bits set; separated by commas in the environment)"
    return Kind(allowed, check, parse, lambda given: [str(network) for network in given])


def ports() -> Kind[tuple[int, ...]]:
    """Return the kind of a list of ports."""

    def check(value: object) -> tuple[int, ...]:
        if not isinstance(value, list | tuple):
            raise TypeError("not a list")
        return tuple(_require(_port(entry), lambda port: 1 <= port <= 65_535) for entry in value)

    def parse(text: str) -> tuple[int, ...]:
        return check([entry.strip() for entry in text.split(",") if entry.strip()])

    return Kind(
        "a list of ports such as 5432 (separated by commas in the environment)",
        check,
        parse,
        lambda given: [str(port) for port in given],
    )


def _port(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else int(_line(value))


def database_url() -> Kind[str]:
    """Return the kind of a PostgreSQL URL, or empty for the embedded database; its password is never shown."""

    def check(value: object) -> str:
        url = _line(value)
        if url:
            parts = urlsplit(url)
            _require(parts.scheme, {"postgres", "postgresql"}.__contains__)
            # One host, or several of which libpq takes the first that answers: HOST:PORT,HOST:PORT.
            for host in parts.netloc.rpartition("@")[2].split(","):
                _require(urlsplit(f"//{host}").port or 1, bool)  # reading the port is what validates it
        return url

    return Kind("postgresql://USER:PASSWORD@HOST:PORT/NAME, or empty", check, check, mask_whole_url)


def proxy_url() -> Kind[str]:
    """Return the kind of the URL of an HTTP proxy, or none."""

    def check(value: object) -> str:
        credentials = r"([^\s/?#@:]+(:[^\s/?#@]*)?@)?"
        form = rf"http://{credentials}[\w.-]+:[0-9]{{1,5}}/?"
        return _require(_line(value), lambda url: not url or re.fullmatch(form, url) is not None)

    return Kind("http://USER:PASSWORD@HOST:PORT, or empty", check, check, mask_whole_url)


def _line(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return _require(value, lambda text: text == "" or text.isprintable())


def _require(value: T, holds: Callable[[T], bool]) -> T:
    if not holds(value):
        raise ValueError("not allowed")
    return value
