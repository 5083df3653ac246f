"""Requests between nodes: only those that a node of the cluster signed, unchanged and lately, are taken for such."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.http.server import Exchange
from penstock.sqs.auth.caller import Hop, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.names import Scope
from penstock.sqs.nodes.hop import Hops
from penstock.testing.clock import VirtualClock

BODY = b'{"QueueName":"q"}'
TARGET = b"AmazonSQS.GetQueueUrl"


def signed(hops: Hops, caller: SqsCaller) -> dict[bytes, bytes]:
    headers = hops.headers(Hop("sqs", woken=True), caller, "POST", b"/", TARGET, BODY)
    return {name.encode(): value.encode() for name, value in headers} | {b"x-amz-target": TARGET}


def exchange(body: bytes = BODY, target: bytes = b"/") -> Exchange:
    return cast(Exchange, SimpleNamespace(method="POST", target=target, body=body, hung_up=None))


CALLER = SqsCaller(
    b"queues.example:9324", admin=False, notes={"SenderId": "ä"}, scope=Scope("eu-west-1", "123456789012"), secure=True
)


def test_the_identity_of_the_caller_travels() -> None:
    hops = Hops(b"secret", VirtualClock())
    headers = signed(hops, CALLER)
    assert hops.is_hop(headers)
    caller = hops.caller(headers, exchange(), BODY)
    assert (caller.admin, caller.notes, caller.scope, caller.base_url) == (
        False,
        {"SenderId": "ä"},
        Scope("eu-west-1", "123456789012"),
        "https://queues.example:9324",
    )
    assert (caller.hop, caller.json) == (Hop("sqs", woken=True), BODY)


@pytest.mark.parametrize("name", [b"x-penstock-hop", b"x-penstock-caller"])
def test_a_changed_header_is_not_signed(name: bytes) -> None:
    hops = Hops(b"secret", VirtualClock())
    headers = signed(hops, CALLER)
    for place in range(len(headers[name])):
        changed = bytearray(headers[name])
        changed[place] ^= 1
        assert not hops.is_hop({**headers, name: bytes(changed)})
    assert not hops.is_hop({key: value for key, value in headers.items() if key != name})


@pytest.mark.parametrize("changes", [{"body": BODY + b" "}, {"target": b"/admin/queues"}])
def test_a_changed_request_is_refused(changes: dict[str, Any]) -> None:
    hops = Hops(b"secret", VirtualClock())
    with pytest.raises(SqsError) as caught:
        hops.caller(signed(hops, CALLER), exchange(**changes), BODY)
    assert caught.value.kind is ErrorKind.ACCESS_DENIED


def test_another_secret_or_an_old_request_is_not_taken() -> None:
    clock = VirtualClock()
    hops = Hops(b"secret", clock)
    headers = signed(hops, CALLER)
    assert not Hops(b"another", clock).is_hop(headers)
    clock.advance(16 * 60)
    assert not hops.is_hop(headers)
