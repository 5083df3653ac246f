"""Queue names, the ARNs and queue URLs that contain them, and pages of names."""

import re
from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import lru_cache

from penstock.sqs.errors import invalid_parameter, missing_parameter, queue_does_not_exist

FIFO_SUFFIX = ".fifo"
MAX_PAGE = 1000

_STANDARD = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_ACCOUNT = re.compile("[0-9]{12}")
_ARN = re.compile(r"arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:([A-Za-z0-9_.-]{1,80})")


def is_name(text: str) -> bool:
    """Return whether a queue may have this name."""
    return (_FIFO if text.endswith(FIFO_SUFFIX) else _STANDARD).fullmatch(text) is not None


def check_name(name: str, *, fifo: bool) -> None:
    """Raise InvalidParameterValue unless a new queue of this kind may have the name."""
    if not name:
        raise missing_parameter("QueueName")
    if fifo and _FIFO.fullmatch(name) is None:
        raise invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            "must end with .fifo suffix and be 1 to 80 in length."
        )
    if not fifo and _STANDARD.fullmatch(name) is None:
        raise invalid_parameter("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")


def arn(region: str, account: str, name: str) -> str:
    """Return the ARN of a queue."""
    return f"arn:aws:sqs:{region}:{account}:{name}"


def parse_arn(text: str) -> str | None:
    """Return the queue name in an ARN. Compare the whole ARN to know whether the queue is ours."""
    found = _ARN.fullmatch(text)
    return found[1] if found is not None and is_name(found[1]) else None


def queue_url(base_url: str, account: str, name: str) -> str:
    """Return the URL that clients send to name a queue."""
    return f"{base_url.rstrip('/')}/{account}/{name}"


@lru_cache(4096)
def name_of_url(url: str, account: str | None = None) -> str:
    """Return the queue name in a queue URL of an account, or of any account; the host is not checked.

    Clients also send the path or the name alone. AWS answers anything else with QueueDoesNotExist.
    """
    if not url:
        raise missing_parameter("QueueUrl")
    path, slash, name = url.rpartition("/")
    if not is_name(name) or (slash and not _is_account(path.rpartition("/")[2], account)):
        raise queue_does_not_exist()
    return name


def _is_account(text: str, account: str | None) -> bool:
    return _ACCOUNT.fullmatch(text) is not None if account is None else text == account


def page(names: Sequence[str], max_results: int | None, token: str | None) -> tuple[list[str], str | None]:
    """Return a page of sorted names and the token of the next; without `max_results`, up to 1,000 and no token."""
    if max_results is not None and not 1 <= max_results <= MAX_PAGE:
        raise invalid_parameter(
            f"Value {max_results} for parameter MaxResults is invalid. Reason: Must be between 1 and {MAX_PAGE}."
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
