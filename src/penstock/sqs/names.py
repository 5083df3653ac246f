"""Queue names, the regions and accounts they belong to, ARNs, queue URLs, and pages of names.

A queue's key is its name, or `region:account:name` if it does not belong to the region and account of the server. So
keys, ARNs and what is stored agree, and a server that is used as one region has plain names.
"""

import re
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.sqs.errors import invalid_parameter, missing_parameter, queue_does_not_exist

FIFO_SUFFIX = ".fifo"
MAX_PAGE = 1000

_STANDARD = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_ACCOUNT = re.compile("[0-9]{12}")
_REGION = re.compile("[a-z0-9-]{1,32}")
_ARN = re.compile(r"arn:aws[a-z-]*:sqs:([a-z0-9-]+):([0-9]{12}):([A-Za-z0-9_.-]{1,80})")
_REGION_SEGMENT = "queue"
"""In the URL of a queue of another region, the segment before the region."""


class Scope(NamedTuple):
    """The region and the account that a queue belongs to."""

    region: str
    account: str

    def key_of(self, name: str, home: "Scope") -> str:
        """Return the key of a queue."""
        return name if self == home else f"{self.region}:{self.account}:{name}"


class UrlParts(NamedTuple):
    """What a queue URL says; clients also send the path or the name alone."""

    region: str | None
    account: str | None
    name: str


def is_region(text: str) -> bool:
    """Return whether this can be the name of a region."""
    return _REGION.fullmatch(text) is not None


def is_account(text: str) -> bool:
    """Return whether this is the id of an account."""
    return _ACCOUNT.fullmatch(text) is not None


def scope_and_name(key: str, home: Scope) -> tuple[Scope, str]:
    """Return where the queue of a key belongs, and its name."""
    place, _, name = key.rpartition(":")
    region, _, account = place.partition(":")
    return (Scope(region, account) if place else home), name


def is_name(text: str) -> bool:
    """Return whether a queue may have this name."""
    return (_FIFO if text.endswith(FIFO_SUFFIX) else _STANDARD).fullmatch(text) is not None


def check_name(name: str, *, fifo: bool) -> None:
    """Raise InvalidParameterValue unless a new queue of this kind may have the name."""
    if not name:
        raise invalid_parameter("Queue name cannot be empty")
    if fifo and _FIFO.fullmatch(name) is None:
        raise invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            "must end with .fifo suffix and be 1 to 80 in length."
        )
    if not fifo and _STANDARD.fullmatch(name) is None:
        raise invalid_parameter("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")


def arn(scope: Scope, name: str) -> str:
    """Return the ARN of a queue."""
    return f"arn:aws:sqs:{scope.region}:{scope.account}:{name}"


def parse_arn(text: str) -> tuple[Scope, str] | None:
    """Return the scope and the name in the ARN of a queue."""
    found = _ARN.fullmatch(text)
    return (Scope(found[1], found[2]), found[3]) if found is not None and is_name(found[3]) else None


def queue_url(base_url: str, scope: Scope, name: str, home: Scope) -> str:
    """Return the URL that clients send to name a queue; it has the region unless that is the server's own."""
    place = "" if scope.region == home.region else f"/{_REGION_SEGMENT}/{scope.region}"
    return f"{base_url.rstrip('/')}{place}/{scope.account}/{name}"


@lru_cache(4096)
def parts_of_url(url: str) -> UrlParts:
    """Return what a queue URL says; the host is not checked. AWS answers anything else with QueueDoesNotExist.

    The URLs in the examples of AWS's API reference end with a slash.
    """
    if not url:
        raise missing_parameter("QueueUrl")
    *path, name = url.removesuffix("/").split("/")
    if not is_name(name) or (path and not is_account(path[-1])):
        raise queue_does_not_exist()
    region = path[-2] if len(path) > 2 and path[-3] == _REGION_SEGMENT else None
    if region is not None and not is_region(region):
        raise queue_does_not_exist()
    return UrlParts(region, path[-1] if path else None, name)


def page(names: Sequence[str], max_results: int | None, token: str | None) -> tuple[list[str], str | None]:
    """Return a page of sorted names and the token of the next; without `max_results`, up to 1,000 and no token."""
    if max_results is not None and not 1 <= max_results <= MAX_PAGE:
        raise invalid_parameter(
            "Value for parameter MaxResults is invalid. "
            f"Reason: MaxResults must be an integer between 1 and {MAX_PAGE}."
        )
    after = _decode(token) if token is not None else ""
    rest = [name for name in names if name > after]
    if max_results is None:
        return rest[:MAX_PAGE], None
    chosen = rest[:max_results]
    return chosen, _encode(chosen[-1]) if len(rest) > len(chosen) else None


def _encode(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def _decode(token: str) -> str:
    try:
        return b64decode(token, b"-_", validate=True).decode()
    except (Base64Error, ValueError):
        raise invalid_parameter("Invalid or expired next token.") from None
