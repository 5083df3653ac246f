"""The URLs that deliveries go to, checked when they are given."""

from penstock.delivery.errors import Undeliverable
from penstock.delivery.http.request import parse_target
from penstock.domain.errors import InvalidArgument


def checked_target(url: str) -> str:
    """A URL that a request can be made from; whether it may be reached is found out when it is."""
    try:
        parse_target(url)
    except Undeliverable as error:
        # Without the URL: it may carry a secret.
        raise InvalidArgument(f"the target is no URL to deliver to: {error.message.partition(': ')[2]}") from error
    return url
