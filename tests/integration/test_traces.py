"""Traces from publishing to the webhook, as a collector gets them by OTLP."""

import gzip
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.events.store.sqlite import sqlite_repository
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import DispatchRig, dispatch_rig
from tests.rigs.job_database import with_tables


@pytest.fixture
async def collector() -> AsyncIterator[RecordingReceiver]:
    async with RecordingReceiver() as receiver:
        yield receiver


def spans_in(collector: RecordingReceiver) -> list[Span]:
    """All spans that have arrived, the earliest first."""
    found: list[Span] = []
    for request in collector.requests:
        packed = request.headers.get("content-encoding") == "gzip"
        sent = ExportTraceServiceRequest.FromString(gzip.decompress(request.body) if packed else request.body)
        found += [span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans]
    return sorted(found, key=lambda span: (span.start_time_unix_nano, span.name != "publish"))


def rig_on(
    path: Path, collector: RecordingReceiver | None, ratio: float = 1.0
) -> AbstractAsyncContextManager[DispatchRig]:
    repository = sqlite_repository(path / "jobs.db", durability="survives-process-crash-only")
    endpoint = "" if collector is None else f"{collector.url}/v1/traces"
    return dispatch_rig(repository, traces_endpoint=endpoint, traces_ratio=ratio)


async def test_an_event_and_its_deliveries_are_one_trace(tmp_path: Path, collector: RecordingReceiver) -> None:
    async with rig_on(tmp_path, collector) as rig:
        await rig.subscribe("billing", retryDelaysS=[1])
        rig.receiver.script(Reply(status=500))
        await rig.publish()
        rig.clock.advance(2)
        await rig.dispatch_all()
        rig.clock.advance(5)
        await rig.dispatch_all()
        told = [request.headers["traceparent"].split("-") for request in rig.receiver.requests]
    published, failed, delivered = spans_in(collector)
    assert published.name == "publish orders:created"
    assert published.parent_span_id == b""
    assert {span.trace_id for span in (published, failed, delivered)} == {published.trace_id}
    assert failed.parent_span_id == delivered.parent_span_id == published.span_id
    assert [span.span_id.hex() for span in (failed, delivered)] == [parts[2] for parts in told]
    assert {parts[1] for parts in told} == {published.trace_id.hex()}
    assert {parts[3] for parts in told} == {"01"}
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert delivered.status.code == Status.STATUS_CODE_UNSET
    attributes = {entry.key: entry.value for entry in failed.attributes}
    assert attributes["http.response.status_code"].int_value == 500
    assert attributes["penstock.waited_ms"].int_value == 2000


async def test_a_publishers_trace_goes_on(tmp_path: Path, collector: RecordingReceiver) -> None:
    async with rig_on(tmp_path, collector) as rig:
        await rig.subscribe()
        await rig.publish(traceparent=f"00-{'ab' * 16}-{'cd' * 8}-01")
        await rig.publish(2, traceparent=f"00-{'12' * 16}-{'cd' * 8}-00")
        await rig.dispatch_all()
    published, delivered = spans_in(collector)
    assert published.trace_id == delivered.trace_id == b"\xab" * 16
    assert published.parent_span_id == b"\xcd" * 8
    assert delivered.parent_span_id == published.span_id


async def test_an_event_told_twice_is_published_once(tmp_path: Path, collector: RecordingReceiver) -> None:
    async with rig_on(tmp_path, collector) as rig:
        await rig.publish()
        await rig.publish()
    assert len(spans_in(collector)) == 1


@pytest.mark.parametrize("ratio", [0.0, 1.0])
async def test_nothing_is_sent_of_what_is_not_wanted(
    tmp_path: Path, collector: RecordingReceiver, ratio: float
) -> None:
    async with rig_on(tmp_path, collector if ratio == 0 else None, ratio) as rig:
        await rig.subscribe()
        await rig.publish()
        await rig.dispatch_all()
        (request,) = rig.receiver.requests
    assert request.headers["traceparent"].endswith("-00")
    assert collector.requests == []


async def test_a_collector_that_is_away_does_no_harm(tmp_path: Path) -> None:
    repository = sqlite_repository(with_tables(tmp_path / "jobs.db"), durability="survives-process-crash-only")
    async with dispatch_rig(repository, traces_endpoint="http://127.0.0.1:1/v1/traces") as rig:
        await rig.subscribe()
        await rig.publish()
        assert len(await rig.dispatch_all()) == 1
