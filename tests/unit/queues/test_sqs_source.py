"""The SQS source and publisher against servers that fail in ways that real ones seldom do."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.delivery.http.http1 import Http1Connection
from penstock.domain.errors import PenstockError
from penstock.queues.errors import BrokerQueueNotFound, BrokerRefused, BrokerUnavailable, HeldBack, SourceClosed
from penstock.queues.port import Publication, Received
from penstock.queues.sqs import source as sqs
from penstock.queues.sqs.client import SqsPolling
from penstock.queues.sqs.publisher import SqsPublisher
from penstock.queues.sqs.source import SqsSource, pauses_after
from penstock.queues.uri import SqsUri, parse_uri
from penstock.testing.clock import VirtualClock
from tests.rigs.virtual_pauses import VirtualPauses, settle
from tests.sources.scripted_server import Asked, Reply, Script, ScriptedServer

PATIENCE_S = 60
EXPIRED = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."


def uri_of(port: int, name: str = "q.fifo", scheme: str = "http") -> SqsUri:
    uri = parse_uri(f"{scheme}://127.0.0.1:{port}/000000000000/{name}")
    assert isinstance(uri, SqsUri)
    return uri


def handed_out(*ids: str, group: str = "g") -> Reply:
    messages = [
        {"MessageId": id, "ReceiptHandle": f"h-{id}", "Body": id, "Attributes": {"MessageGroupId": group}} for id in ids
    ]
    return {"Messages": messages}


def message(id: str) -> Received:
    return Received(id, b"", "g", f"h-{id}")


def failing(asked: Asked, **reasons: tuple[str, str]) -> Reply:
    """A batch's answer in which entries with these handles fail."""
    failed = [
        {"Id": entry["Id"], "Code": code, "Message": text, "SenderFault": True}
        for entry in asked.body["Entries"]
        for handle, (code, text) in reasons.items()
        if entry.get("ReceiptHandle") == f"h-{handle}"
    ]
    return {"Successful": [], "Failed": failed}


@asynccontextmanager
async def consuming(
    script: Script, polling: SqsPolling | None = None
) -> AsyncIterator[tuple[SqsSource, ScriptedServer]]:
    async with ScriptedServer(script) as server, asyncio.timeout(PATIENCE_S):
        source = SqsSource("q", uri_of(server.port), visibility_s=30, polling=polling)
        yield source, server
        await source.close()


@asynccontextmanager
async def publishing(script: Script) -> AsyncIterator[tuple[SqsPublisher, ScriptedServer]]:
    async with ScriptedServer(script) as server, asyncio.timeout(PATIENCE_S):
        publisher = SqsPublisher(uri_of(server.port))
        yield publisher, server
        await publisher.close()


def in_turn(*replies: Reply) -> Script:
    """Answers one after the other, the last one again and again."""
    left = list(replies)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]


# Polling


def test_only_a_partial_batch_is_followed_by_a_pause() -> None:
    assert [pauses_after(received, 10) for received in (0, 1, 9, 10)] == [False, True, True, False]


async def test_a_partial_batch_is_handed_over_at_once_and_only_the_next_poll_waits() -> None:
    loop = asyncio.get_running_loop()
    async with consuming(in_turn(handed_out("1"), handed_out("2"))) as (source, _):
        await source.receive()
        first_s = loop.time()
        await source.receive()
        assert loop.time() - first_s >= 0.09


async def test_a_partial_batch_makes_one_connection_wait_and_not_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = VirtualPauses(VirtualClock())
    monkeypatch.setattr(sqs, "pause", pauses.pause)
    full = handed_out(*(f"full-{number}" for number in range(10)))
    async with consuming(in_turn(handed_out("1"), full)) as (source, _):
        await source.receive()
        waiting = asyncio.create_task(source.receive())
        await settle()
        assert len(await source.receive()) == 10
        assert (len(pauses.asked), waiting.done()) == (1, False)
        await pauses.advance(0.1)
        assert len(await waiting) == 10


@pytest.mark.parametrize(("attributes", "pause_s"), [({}, 0.1), ({"PartitionCount": "1"}, 0.005)])
async def test_the_pause_is_short_on_a_server_of_ours(attributes: dict[str, str], pause_s: float) -> None:
    async with consuming(in_turn({"Attributes": attributes})) as (source, _):
        await source.open()
        assert source.pause_s == pause_s


async def test_a_poll_asks_for_ten_messages_and_waits_twenty_seconds() -> None:
    async with consuming(in_turn({})) as (source, server):
        assert await source.receive() == []
    (asked,) = server.asked
    assert asked.body == {
        "QueueUrl": f"http://127.0.0.1:{server.port}/000000000000/q.fifo",
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 20,
        "VisibilityTimeout": 30,
        "AttributeNames": ["MessageGroupId"],
        "MessageAttributeNames": ["PenstockGroup"],
    }


async def test_the_first_poll_after_a_failure_says_at_once_that_the_server_is_back() -> None:
    async with consuming(in_turn((503, {}), {})) as (source, server):
        with pytest.raises(BrokerUnavailable):
            await source.receive()
        assert await source.receive() == await source.receive() == []
    assert [asked.body["WaitTimeSeconds"] for asked in server.asked] == [20, 0, 20]


async def test_the_queue_s_own_visibility_holds_if_none_is_asked_for() -> None:
    answers: dict[str, Reply] = {"GetQueueAttributes": {"Attributes": {"VisibilityTimeout": "45"}}}
    async with ScriptedServer(lambda asked: answers.get(asked.action, {})) as server:
        source = SqsSource("q", uri_of(server.port))
        await source.open()
        await source.receive()
        await source.extend([message("1")])
        await source.close()
    assert source.visibility_s == 45
    assert "VisibilityTimeout" not in server.asked[1].body
    assert server.asked[2].body["Entries"][0]["VisibilityTimeout"] == 45


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ((400, {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no"}), BrokerQueueNotFound),
        ((400, {"__type": "AWS.SimpleQueueService.NonExistentQueue", "Message": "no"}), BrokerQueueNotFound),
        ((403, {"__type": "com.amazonaws.sqs#AccessDenied", "message": "no"}), BrokerRefused),
        ((400, {"__type": "com.amazonaws.sqs#Throttling", "message": "slow"}), BrokerUnavailable),
        ((503, {}), BrokerUnavailable),
        ((502, {"html": "not SQS"}), BrokerUnavailable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope", BrokerUnavailable),
        (b"this is not HTTP", BrokerUnavailable),
        (b"", BrokerUnavailable),
    ],
)
async def test_a_poll_that_fails_says_how(reply: Reply, kind: type[PenstockError]) -> None:
    async with consuming(in_turn(reply)) as (source, _):
        with pytest.raises(kind, match=r"127\.0\.0\.1"):
            await source.receive()


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    async with consuming(in_turn(None), SqsPolling(timeout_s=0.05)) as (source, _):
        with pytest.raises(BrokerUnavailable, match=r"no answer within 0\.05 s"):
            await source.receive()


async def test_messages_that_come_in_the_moment_of_a_cancel_are_given_back() -> None:
    cancel: list[Callable[[], object]] = []

    def script(asked: Asked) -> Reply:
        if asked.action == "ReceiveMessage":
            return handed_out("1", "2")
        return {}

    async with consuming(script) as (source, server):
        finish = Http1Connection._finish

        def complete(self: Http1Connection) -> None:
            finish(self)
            for each in cancel:
                each()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Http1Connection, "_finish", complete)
            receiving = asyncio.create_task(source.receive())
            cancel.append(receiving.cancel)
            with pytest.raises(asyncio.CancelledError):
                await receiving
            cancel.clear()
    assert server.actions() == ["ReceiveMessage", "ChangeMessageVisibilityBatch"]
    entries = server.asked[1].body["Entries"]
    assert [(entry["ReceiptHandle"], entry["VisibilityTimeout"]) for entry in entries] == [("h-1", 0), ("h-2", 0)]


async def test_a_cancel_in_the_moment_of_an_answer_is_a_cancel_for_every_other_call() -> None:
    """A scheduler that is told to stop while it opens its queue would otherwise never end."""
    cancel: list[Callable[[], object]] = []
    finish = Http1Connection._finish

    def complete(self: Http1Connection) -> None:
        finish(self)
        for each in cancel:
            each()

    async with consuming(in_turn({})) as (source, _):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Http1Connection, "_finish", complete)
            opening = asyncio.create_task(source.open())
            cancel.append(opening.cancel)
            with pytest.raises(asyncio.CancelledError):
                await opening
            cancel.clear()


async def test_the_key_is_looked_for_when_the_queue_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with consuming(in_turn({})) as (source, server):
        for key in ("the-first", "the-second"):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
            await source.open()
    assert [
        "credential=" + key in asked.headers["authorization"]
        for key, asked in zip(("the-first", "the-second"), server.asked, strict=True)
    ] == [True, True]


# Connections


async def test_a_connection_is_kept_and_one_given_up_by_the_server_is_replaced() -> None:
    async with consuming(in_turn({})) as (source, server):
        await source.receive()
        await source.receive()
        assert server.connections == 1
        await server.hang_up()
        await source.receive()
        assert server.connections == 2


async def test_a_kept_connection_that_breaks_before_the_answer_is_tried_once_more_on_a_new_one() -> None:
    async with consuming(in_turn({}, b"", {})) as (source, server):
        await source.receive()
        assert await source.receive() == []
    assert [asked.connection for asked in server.asked] == [1, 1, 2]


async def test_a_connection_that_breaks_in_the_answer_is_not_tried_again() -> None:
    cut_off = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    async with consuming(in_turn({}, cut_off)) as (source, server):
        await source.receive()
        with pytest.raises(BrokerUnavailable, match="closed the connection before the answer was complete"):
            await source.receive()
    assert len(server.asked) == 2


async def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    async with consuming(in_turn(b"")) as (source, server):
        with pytest.raises(BrokerUnavailable):
            await source.receive()
    assert len(server.asked) == 1


async def test_an_answer_that_ends_the_connection_does_so() -> None:
    reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    async with consuming(in_turn(reply)) as (source, server):
        assert await source.receive() == []
        assert await source.receive() == []
    assert [asked.connection for asked in server.asked] == [1, 2]


async def test_a_closed_source_asks_nobody() -> None:
    async with consuming(in_turn({})) as (source, server):
        await source.close()
        with pytest.raises(SourceClosed):
            await source.receive()
    assert server.asked == []


async def test_a_server_behind_tls_is_asked_only_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = _certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with ScriptedServer(in_turn(handed_out("1")), tls) as server, asyncio.timeout(PATIENCE_S):
        stranger = SqsSource("q", uri_of(server.port, scheme="https"))
        with pytest.raises(BrokerUnavailable, match=r"(?i)certificate"):
            await stranger.receive()
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        source = SqsSource("q", uri_of(server.port, scheme="https"))
        assert [each.broker_id for each in await source.receive()] == ["1"]
        await asyncio.gather(source.close(), stranger.close())


# Settling


async def test_acks_and_nacks_of_one_moment_are_one_request_each() -> None:
    async with consuming(in_turn({})) as (source, server):
        await asyncio.gather(
            *(source.ack(message(str(number))) for number in range(10)),
            source.nack(message("a")),
            source.nack(message("b"), 7),
        )
        await source.extend([message("c"), message("d")])
    assert sorted(server.actions()) == [*["ChangeMessageVisibilityBatch"] * 2, "DeleteMessageBatch"]
    changes = [asked.body["Entries"] for asked in server.asked if asked.action == "ChangeMessageVisibilityBatch"]
    assert [[(entry["ReceiptHandle"], entry["VisibilityTimeout"]) for entry in entries] for entries in changes] == [
        [("h-a", 0), ("h-b", 7)],
        [("h-c", 30), ("h-d", 30)],
    ]


async def test_more_than_ten_go_in_several_requests_at_once() -> None:
    async with consuming(in_turn({})) as (source, server):
        await asyncio.gather(*(source.ack(message(str(number))) for number in range(25)))
    assert sorted(len(asked.body["Entries"]) for asked in server.asked) == [5, 10, 10]


async def test_each_of_a_batch_ends_as_the_server_says() -> None:
    async with consuming(lambda asked: failing(asked, b=("InternalError", "not today"))) as (source, _):
        results = await asyncio.gather(*map(source.ack, map(message, "abc")), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), BrokerRefused, type(None)]
    assert "not today" in str(results[1])


@pytest.mark.parametrize(
    "reason", [("ReceiptHandleIsInvalid", "The input receipt handle is invalid."), ("InvalidParameterValue", EXPIRED)]
)
async def test_a_message_whose_handle_expired_is_deleted_when_it_is_handed_out_again(reason: tuple[str, str]) -> None:
    expired = True

    def script(asked: Asked) -> Reply:
        if asked.action == "ReceiveMessage":
            return handed_out("done", "other")
        return failing(asked, done=reason) if expired else {}

    async with consuming(script) as (source, server):
        await source.ack(message("done"))
        expired = False
        assert [each.broker_id for each in await source.receive()] == ["other"]
        assert server.actions()[:2] == ["DeleteMessageBatch", "ReceiveMessage"]
        await source.ack(message("unrelated"))
        deleted = [entry["ReceiptHandle"] for asked in server.asked[2:] for entry in asked.body["Entries"]]
        assert "h-done" in deleted
        # It is gone for good: should the same id come again, it is another message.
        assert [each.broker_id for each in await source.receive()] == ["done", "other"]


async def test_a_deferred_delete_that_fails_is_tried_at_the_next_sight() -> None:
    replies: list[Reply] = [(503, {}), {}]

    def script(asked: Asked) -> Reply:
        if asked.action == "ReceiveMessage":
            return handed_out("done")
        if len(server.asked) == 1:
            return failing(asked, done=("ReceiptHandleIsInvalid", ""))
        return replies.pop(0)

    async with consuming(script) as (source, server):
        await source.ack(message("done"))
        assert await source.receive() == []
        assert await source.receive() == []
    assert server.actions().count("DeleteMessageBatch") == 3


@pytest.mark.parametrize(
    "code", ["AWS.SimpleQueueService.MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"]
)
async def test_giving_back_or_extending_what_is_no_longer_ours_is_no_error(code: str) -> None:
    async with consuming(lambda asked: failing(asked, a=(code, "expired"), b=(code, "expired"))) as (source, _):
        await source.nack(message("a"))
        await source.extend([message("b"), message("c")])


async def test_a_delay_stays_within_what_sqs_allows_after_the_hand_out() -> None:
    async with consuming(in_turn({})) as (source, server):
        await asyncio.gather(source.nack(message("a"), 100_000), source.nack(message("b"), -5))
    delays = [entry["VisibilityTimeout"] for entry in server.asked[0].body["Entries"]]
    assert delays == [43_200 - 1_800, 0]


# Publishing


def sends(server: ScriptedServer) -> list[list[str]]:
    asked = [asked.body["Entries"] for asked in server.asked if asked.action == "SendMessageBatch"]
    return [[entry["MessageBody"] for entry in entries] for entries in asked]


def publication(text: str, group: str | None) -> Publication:
    return Publication(text.encode(), group, text)


def send_failures(*texts: str, sender_fault: bool = False) -> Script:
    """Fails the sending of these bodies."""

    def script(asked: Asked) -> Reply:
        entries = asked.body.get("Entries", [])
        failed = [
            {"Id": entry["Id"], "Code": "InternalError", "Message": "not today", "SenderFault": sender_fault}
            for entry in entries
            if entry["MessageBody"] in texts
        ]
        return {"Failed": failed}

    return script


async def test_a_failure_in_a_batch_never_lets_a_later_message_of_the_group_in() -> None:
    wanted = [publication(f"{group}{number}", group) for number in range(4) for group in "ab"]
    async with publishing(send_failures("a1")) as (publisher, server):
        results = await publisher.publish(wanted)
    sent = [text for texts in sends(server) for text in texts]
    assert [text for text in sent if text.startswith("a")] == ["a0", "a1"]
    assert [type(result) for result in results[::2]] == [type(None), BrokerUnavailable, HeldBack, HeldBack]
    assert results[1::2] == [None] * 4


async def test_a_penstock_server_gets_several_messages_of_a_group_in_a_batch() -> None:
    attributes = {"Attributes": {"PartitionCount": "1", "MaximumMessageSize": "1048576"}}
    async with publishing(in_turn(attributes, {})) as (publisher, server):
        await publisher.open()
        assert await publisher.publish([publication(str(number), "g") for number in range(12)]) == [None] * 12
    assert sends(server) == [[str(number) for number in range(10)], ["10", "11"]]


async def test_calls_of_one_moment_share_a_batch() -> None:
    async with publishing(in_turn({})) as (publisher, server):
        await asyncio.gather(*(publisher.publish([publication(group, group)]) for group in "abc"))
    assert sends(server) == [["a", "b", "c"]]


async def test_what_sqs_cannot_carry_is_told_before_it_is_sent() -> None:
    bad = [b"", b"\xff", b"\x00", b"x" * (1024 * 1024 + 1)]
    async with publishing(in_turn({})) as (publisher, server):
        results = await publisher.publish([Publication(body, str(place), None) for place, body in enumerate(bad)])
    assert [type(result).__name__ for result in results] == ["InvalidPublication"] * 4
    assert server.asked == []


async def test_ids_that_sqs_does_not_take_are_replaced_by_ones_that_stand_for_them() -> None:
    odd = Publication(b"1", "a group with spaces", "x" * 200)
    async with publishing(in_turn({})) as (publisher, server):
        assert await publisher.publish([odd, publication("2", "plain"), publication("3", None)]) == [None] * 3
    first, plain, without = (entry for asked in server.asked for entry in asked.body["Entries"])
    assert first["MessageAttributes"]["PenstockGroup"]["StringValue"] == "a group with spaces"
    assert len(first["MessageGroupId"]) == len(first["MessageDeduplicationId"]) == 65
    assert (plain["MessageGroupId"], plain["MessageDeduplicationId"]) == ("plain", "2")
    assert "MessageAttributes" not in plain
    assert without["MessageGroupId"] == "__DEFAULT__"


async def test_a_batch_whose_answer_is_lost_fails_all_of_it() -> None:
    async with publishing(in_turn(b"")) as (publisher, _):
        results = await publisher.publish([publication("1", "a"), publication("2", "a"), publication("3", "b")])
    assert [type(result) for result in results] == [BrokerUnavailable, HeldBack, BrokerUnavailable]


def _certificate(directory: Path) -> Path:
    """A key and a self-signed certificate of 127.0.0.1, in one file."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    alternatives: list[Any] = [x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
