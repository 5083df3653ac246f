"""Both wire protocols byte by byte: forms, XML, errors, signatures, and connections that outlive a bad request."""

import socket
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.protocol.conftest import MakeQueue
from tests.services.sqs_server import ADMIN, CLIENT, SqsServer, bodies, counts, exchange, receive

VERSION = {"Version": "2012-11-05"}
SPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
TARGET = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}


def query(server: SqsServer, action: str, method: str = "POST", path: str = "/", **fields: str) -> ElementTree.Element:
    form = urlencode({"Action": action, **VERSION, **{key.replace("__", "."): v for key, v in fields.items()}})
    if method == "POST":
        answer = server.http("POST", path, form, {"Content-Type": "application/x-www-form-urlencoded"})
    else:
        answer = server.http("POST", f"{path}?{form}")
    root = ElementTree.fromstring(answer.body)
    assert answer.headers["content-type"] == "text/xml"
    assert answer.headers["x-amzn-requestid"]
    assert answer.status == (400 if root.tag == f"{SPACE}ErrorResponse" else 200)
    return root


def text(root: ElementTree.Element, path: str) -> str | None:
    return root.findtext(".//" + "/".join(SPACE + part for part in path.split("/")))


@pytest.mark.parametrize("method", ["in the URL", "POST"])
def test_a_message_goes_round_by_query(sqs: SqsServer, make_queue: MakeQueue, method: str) -> None:
    url = make_queue(sqs.anyone)
    name = url.rpartition("/")[2]
    assert text(query(sqs, "GetQueueUrl", method, QueueName=name), "GetQueueUrlResult/QueueUrl") == url
    sent = query(
        sqs,
        "SendMessage",
        method,
        QueueUrl=url,
        MessageBody="a <b> & ü",
        MessageAttribute__1__Name="colour",
        MessageAttribute__1__Value__DataType="String",
        MessageAttribute__1__Value__StringValue="blue",
    )
    got = query(
        sqs, "ReceiveMessage", method, urlsplit(url).path, AttributeName__1="All", MessageAttributeName__1="colour"
    )
    assert text(got, "Message/Body") == "a <b> & ü"
    assert text(got, "Message/MessageId") == text(sent, "SendMessageResult/MessageId")
    assert text(got, "Message/MD5OfMessageAttributes") == text(sent, "SendMessageResult/MD5OfMessageAttributes")
    assert text(got, "MessageAttribute/Value/StringValue") == "blue"
    handle = text(got, "Message/ReceiptHandle") or ""
    deleted = query(sqs, "DeleteMessage", method, QueueUrl=url, ReceiptHandle=handle)
    assert text(deleted, "ResponseMetadata/RequestId")
    assert counts(sqs.anyone, url) == (0, 0, 0)


def test_queues_and_batches_by_query(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    make_queue(memory_sqs.anyone, name="by-query", VisibilityTimeout=7)
    made = query(
        memory_sqs, "CreateQueue", QueueName="by-query", Attribute__1__Name="VisibilityTimeout", Attribute__1__Value="7"
    )
    url = text(made, "CreateQueueResult/QueueUrl") or ""
    shown = query(memory_sqs, "GetQueueAttributes", QueueUrl=url, AttributeName__1="VisibilityTimeout")
    assert (text(shown, "Attribute/Name"), text(shown, "Attribute/Value")) == ("VisibilityTimeout", "7")
    listed = query(memory_sqs, "ListQueues", QueueNamePrefix="by-query")
    assert text(listed, "ListQueuesResult/QueueUrl") == url
    batch = {}
    for number, body in ((1, "good"), (2, "bell \x07")):
        batch[f"SendMessageBatchRequestEntry__{number}__Id"] = f"m{number}"
        batch[f"SendMessageBatchRequestEntry__{number}__MessageBody"] = body
    sent = query(memory_sqs, "SendMessageBatch", QueueUrl=url, **batch)
    assert text(sent, "SendMessageBatchResultEntry/Id") == "m1"
    assert text(sent, "BatchResultErrorEntry/Id") == "m2"
    assert text(sent, "BatchResultErrorEntry/Code") == "InvalidMessageContents"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "MissingAction"),
        ({"Action": "Dance"}, "InvalidAction"),
        ({"Action": "SendMessage"}, "AWS.SimpleQueueService.NonExistentQueue"),
        ({"Action": "ReceiveMessage", "QueueUrl": "/000000000000/no"}, "AWS.SimpleQueueService.NonExistentQueue"),
        ({"Action": "CreateQueue", "QueueName": "a b"}, "InvalidParameterValue"),
        ({"Action": "ListQueues", "MaxResults": "ten"}, "MalformedInput"),
    ],
)
def test_errors_by_query(memory_sqs: SqsServer, fields: dict[str, str], code: str) -> None:
    for method in ("in the URL", "POST"):
        form = urlencode({**fields, **VERSION})
        answer = memory_sqs.http("POST", f"/?{form}") if method == "in the URL" else memory_sqs.http(method, "/", form)
        root = ElementTree.fromstring(answer.body)
        assert answer.status == 400
        assert root.tag == f"{SPACE}ErrorResponse"
        assert (text(root, "Error/Type"), text(root, "Error/Code")) == ("Sender", code)
        assert text(root, "RequestId") == answer.headers["x-amzn-requestid"]


def test_errors_in_json_carry_both_names(memory_sqs: SqsServer) -> None:
    headers = {**TARGET, "X-Amz-Target": "AmazonSQS.GetQueueUrl"}
    answer = memory_sqs.http("POST", "/", b'{"QueueName": "not-there"}', headers)
    assert answer.status == 400
    assert answer.json["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert answer.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"


def test_a_request_that_is_too_large_is_refused_unread(memory_sqs: SqsServer) -> None:
    connection = memory_sqs.connection()
    answer = exchange(connection, "POST", "/", b" " * (8 * 1024 * 1024 + 1), TARGET)
    assert (answer.status, answer.json["__type"]) == (
        413,
        "com.amazon.coral.service#RequestEntityTooLargeException",
    )
    connection.close()


def test_a_connection_outlives_bad_requests(memory_sqs: SqsServer) -> None:
    bad: list[tuple[dict[str, str], bytes, int, str]] = [
        ({}, b"{", 400, "SerializationException"),
        ({}, b'{"MaxResults": "ten"}', 400, "SerializationException"),
        ({}, b"\xff", 400, "SerializationException"),
        ({}, b"[" * 100_000, 400, "SerializationException"),
        ({"X-Amz-Target": "AmazonSNS.Publish"}, b"{}", 400, "UnknownOperationException"),
        ({"X-Amz-Target": "AmazonSQS.Dance"}, b"{}", 400, "UnknownOperationException"),
        ({"X-Amz-Target": "ListQueues"}, b"{}", 400, "UnknownOperationException"),
        ({"X-Amz-Target": "AmazonSQS.SendMessage"}, b'{"QueueUrl": "x"}', 400, "MissingRequiredParameterException"),
    ]
    connection = memory_sqs.connection()
    connection.connect()
    sock = connection.sock
    for headers, body, status, kind in bad:
        answer = exchange(connection, "POST", "/", body, {**TARGET, **headers})
        assert (answer.status, answer.json["__type"]) == (status, f"com.amazon.coral.service#{kind}")
        assert exchange(connection, "POST", "/", b"{}", TARGET).status == 200
        assert connection.sock is sock
    connection.close()


def test_a_form_that_breaks_off_is_not_carried_out(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = memory_sqs.anyone
    url = make_queue(client)
    form = urlencode({"Action": "SendMessage", **VERSION, "QueueUrl": url, "MessageBody": "pay 1000000"}).encode()
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(form)}\r\n\r\n".encode()
    address = urlsplit(memory_sqs.url)
    for cut in (len(form) - 1, len(form) - 6, 10, 0):
        with socket.create_connection((address.hostname, address.port)) as sock:
            sock.sendall(head + form[:cut])
            client.list_queues()  # once this is answered, the server has read the beginning of the form
    # A whole request on another connection after these: what was to come of them has come.
    client.send_message(QueueUrl=url, MessageBody="whole")
    assert bodies(receive(client, url, WaitTimeSeconds=1)) == ["whole"]
    assert receive(client, url, WaitTimeSeconds=1) == []


def test_health(memory_sqs: SqsServer) -> None:
    assert memory_sqs.http("GET", "/sqs_health").body == b"ok"
    answer = memory_sqs.http("GET", "/sqs_health", headers={"Accept": "application/json"})
    assert answer.json == {"status": "ok", "capabilities": ["htfifo"]}
    assert memory_sqs.http("GET", "/health/ready").json["status"] == "ready"


# Signatures


def test_signed_requests(secured_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(secured_sqs.plain)
    secured_sqs.plain.send_message(QueueUrl=url, MessageBody="ü & signed")
    (message,) = receive(secured_sqs.admin, url)
    assert (message["Body"], message["Attributes"]["SenderId"]) == ("ü & signed", CLIENT[0])


@pytest.mark.parametrize(
    ("principal", "code"),
    [
        (("somebody", ADMIN[1]), "InvalidClientTokenId"),
        ((ADMIN[0], "another secret that is wrong"), "SignatureDoesNotMatch"),
    ],
)
def test_wrong_keys(secured_sqs: SqsServer, principal: tuple[str, str], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        secured_sqs.client(principal).list_queues()
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def signed(server: SqsServer) -> dict[str, str]:
    """The headers of a well-signed ListQueues with an empty object as body."""
    seen: dict[str, str] = {}

    def note(request: Any, **_: Any) -> None:
        seen.update(
            {key: value.decode() if isinstance(value, bytes) else value for key, value in request.headers.items()}
        )

    client = server.client(ADMIN)
    client.meta.events.register("before-send.sqs.ListQueues", note)
    client.list_queues()
    return {key: value for key, value in seen.items() if key.lower() not in ("content-length", "user-agent")}


def test_signatures_that_do_not_hold(secured_sqs: SqsServer) -> None:
    headers = signed(secured_sqs)

    def refusal(changes: dict[str, str], body: bytes = b"{}") -> tuple[int, str]:
        sent = {key: value for key, value in {**headers, **changes}.items() if value}
        answer = secured_sqs.http("POST", "/", body, sent)
        return answer.status, str(answer.json.get("__type")).removeprefix("com.amazon.coral.service#")

    assert refusal({}) == (200, "None")
    assert refusal({"Authorization": ""}) == (403, "MissingAuthenticationTokenException")
    assert refusal({"Authorization": "AWS4-HMAC-SHA256 Credential=x"}) == (403, "IncompleteSignatureException")
    assert refusal({"X-Amz-Date": "20200101T000000Z"})[0] == 403
    assert refusal({}, b'{"MaxResults": 1}') == (403, "InvalidSignatureException")
    assert refusal({"X-Amz-Target": "AmazonSQS.CreateQueue"}, b'{"QueueName": "stolen"}')[0] == 403


def test_an_old_signature(secured_sqs: SqsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime

    import botocore.auth  # type: ignore[import-untyped]

    old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=20)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda **_: old.replace(tzinfo=None))
    with pytest.raises(ClientError) as caught:
        secured_sqs.client(ADMIN).list_queues()
    assert caught.value.response["Error"]["Code"] == "RequestTimeTooSkewed"


def test_unsigned_queries_are_refused_in_xml(secured_sqs: SqsServer) -> None:
    answer = secured_sqs.http("POST", "/", urlencode({"Action": "ListQueues", **VERSION}))
    assert answer.status == 403
    assert text(ElementTree.fromstring(answer.body), "Error/Code") == "MissingAuthenticationToken"


def test_without_credentials_only_loopback(tmp_path: Any) -> None:
    said = SqsServer(tmp_path, "--memory", "--host", "0.0.0.0").refusal()
    assert "asks for no credentials" in " ".join(said.split())
    assert "Traceback" not in said
