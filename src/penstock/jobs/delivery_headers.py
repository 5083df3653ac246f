"""The headers that subscribers and jobs may set on their deliveries, and those that are ours."""

import re
from collections.abc import Mapping

from penstock.domain.errors import InvalidArgument

JOB_HEADER = "penstock-job"
EVENT_HEADER = "penstock-event"
SUBSCRIPTION_HEADER = "penstock-subscription"
ATTEMPT_HEADER = "penstock-attempt"

MOST_HEADERS = 50
MOST_VALUE_CHARS = 4096

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,100}")
_VALUE = re.compile(r"[ -~]*")
_OURS = ("webhook-", "penstock-", "proxy-")
_OF_THE_CONNECTION = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that somebody wants on deliveries, names in lower case; InvalidArgument names one that cannot be."""
    if len(headers) > MOST_HEADERS:
        raise InvalidArgument(f"there may be {MOST_HEADERS} headers, not {len(headers)}")
    for name, value in headers.items():
        if _NAME.fullmatch(name.lower()) is None:
            raise InvalidArgument(f"{name[:100]!r} cannot be the name of a header")
        if name.lower() in _OF_THE_CONNECTION or name.lower().startswith(_OURS):
            raise InvalidArgument(f"the header {name!r} is set by Penstock: choose another name")
        if _VALUE.fullmatch(value) is None or len(value) > MOST_VALUE_CHARS:
            raise InvalidArgument(
                f"the value of the header {name!r} cannot be sent: use up to {MOST_VALUE_CHARS} ASCII characters"
            )
    return {name.lower(): value for name, value in headers.items()}
