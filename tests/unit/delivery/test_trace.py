"""Which trace a delivery belongs to, and what its subscriber learns of it."""

import re

import msgspec
import pytest

from penstock.delivery.webhook.trace import span_of_event, trace_headers, trace_of_event
from penstock.domain.event import StoredEvent
from penstock.ops.telemetry.otlp import OtlpSpans
from penstock.ops.telemetry.spans import NoSpans

PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
EVENT = StoredEvent(id="0HZXEQ5Y8JY5Z", source="/shop", type="orders:created", received_ms=0)
SPAN_ID = span_of_event("job:1")


def with_attributes(**attributes: str) -> StoredEvent:
    return msgspec.structs.replace(EVENT, attributes=attributes)


def test_a_trace_goes_on_with_a_span_of_its_own() -> None:
    event = with_attributes(traceparent=PARENT, tracestate="vendor=1")
    trace = trace_of_event(event, NoSpans())
    assert (trace.trace_id, trace.parent_id, trace.is_sampled) == ("ab" * 16, "cd" * 8, True)
    headers = trace_headers(trace, SPAN_ID, event.attributes)
    assert headers == {"traceparent": f"00-{'ab' * 16}-{SPAN_ID}-01", "tracestate": "vendor=1"}


@pytest.mark.parametrize("given", ["", "nonsense", f"00-{'0' * 32}-{'cd' * 8}-01", f"00-{'ab' * 16}-{'0' * 16}-01"])
def test_without_a_usable_trace_the_event_begins_one(given: str) -> None:
    event = with_attributes(traceparent=given, tracestate="vendor=1")
    trace = trace_of_event(event, NoSpans())
    headers = trace_headers(trace, SPAN_ID, event.attributes)
    found = FORM.fullmatch(headers["traceparent"])
    assert found is not None
    assert found[3] == "00"
    assert "tracestate" not in headers
    assert trace == trace_of_event(EVENT, NoSpans())
    assert trace.trace_id != trace_of_event(msgspec.structs.replace(EVENT, id="0HZXEQ5Y8JY60"), NoSpans()).trace_id


@pytest.mark.parametrize(("ratio", "least", "most"), [(0.0, 0, 0), (1.0, 1000, 1000), (0.25, 200, 300)])
def test_a_share_of_the_traces_is_kept(ratio: float, least: int, most: int) -> None:
    spans = OtlpSpans("http://127.0.0.1:1/v1/traces", ratio, "test")
    try:
        traces = [
            trace_of_event(msgspec.structs.replace(EVENT, id=str(number)), spans).is_sampled for number in range(1000)
        ]
    finally:
        spans.close()
    assert least <= sum(traces) <= most
