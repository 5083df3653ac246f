"""The W3C trace context of a delivery: the trace of its event goes on, or begins with the event."""

import re
from collections.abc import Mapping
from hashlib import sha256

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_PARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})")
_NOT_SAMPLED = "00"


def trace_headers(attributes: Mapping[str, str], root: str, span: str) -> dict[str, str]:
    """The headers for one delivery; `root` names what a new trace is about, `span` this delivery.

    The ids are made from the names: all deliveries of an event are one trace, also across nodes and attempts.
    """
    span_id = sha256(span.encode()).hexdigest()[:16]
    given = _PARENT.fullmatch(attributes.get(TRACEPARENT, ""))
    if given is None:
        return {TRACEPARENT: f"00-{sha256(root.encode()).hexdigest()[:32]}-{span_id}-{_NOT_SAMPLED}"}
    state = attributes.get(TRACESTATE)
    return {TRACEPARENT: f"00-{given[1]}-{span_id}-{given[2]}", **({TRACESTATE: state} if state else {})}
