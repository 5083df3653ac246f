"""Pages of listings, by opaque tokens that name where the next page begins."""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence

from penstock.sqs.errors import invalid_parameter

MAX_PAGE = 1000


def page(names: Sequence[str], max_results: int | None, token: str | None) -> tuple[list[str], str | None]:
    """A page of sorted names and the token of the next one; without `max_results` up to 1,000 and no token."""
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
