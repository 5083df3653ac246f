"""What Penstock's messages carry in the headers of STOMP frames.

ActiveMQ keeps JMSXGroupID of a frame that is sent, but puts none into the frames that it delivers. So the group goes
twice: as JMSXGroupID for the broker and for JMS consumers, and under a name of our own for us.
"""

from hashlib import sha256

from penstock.sources.stomp_connection import StompAddress
from penstock.sources.stomp_frame import Frame
from penstock.sources.uri import StompUri

GROUP = "PenstockGroup"
DEDUP_ID = "PenstockDedupId"
# The message-id that a message had when it was sent for the first time.
ORIGINAL_ID = "PenstockOriginalId"
DELAY_MS = "AMQ_SCHEDULED_DELAY"
PREFETCH_SIZE = "activemq.prefetchSize"
_READABLE_ID = 128


def stomp_address(uri: StompUri) -> StompAddress:
    """Where the broker of a queue listens."""
    login = uri.login
    return StompAddress(uri.host, uri.port, login=login.user if login else None, passcode=_passcode(uri))


def destination(uri: StompUri) -> str:
    """The queue, as frames name it."""
    return f"/queue/{uri.queue}"


def message_headers(uri: StompUri, group: str | None, dedup_id: str | None = None) -> dict[str, str]:
    """The headers of every message that is sent."""
    headers = {"destination": destination(uri), "persistent": "true"}
    if group is not None:
        headers |= {GROUP: group, "JMSXGroupID": group}
    if dedup_id is not None:
        is_readable = len(dedup_id) <= _READABLE_ID
        headers[DEDUP_ID] = dedup_id if is_readable else f"sha256:{sha256(dedup_id.encode()).hexdigest()}"
    return headers


def broker_id(frame: Frame) -> str:
    """What identifies a message each time it comes, re-sent or not."""
    return frame.headers.get(ORIGINAL_ID) or frame.headers["message-id"]


def group(frame: Frame) -> str | None:
    """The group of a message."""
    return frame.headers.get(GROUP)


def _passcode(uri: StompUri) -> str | None:
    return uri.login.password if uri.login else None
