"""The admin endpoints: list, describe, peek, purge, redrive."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from penstock.sqs.admin.shapes import MAX_DEAD_LETTER_SOURCES
from tests.protocol.conftest import MakeQueue
from tests.rigs.penstock_process import wait_until
from tests.services.sqs_server import ACCOUNT, ADMIN, CLIENT, REGION, Answer, SqsServer, bodies, counts, receive


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def get(server: SqsServer, path: str) -> Any:
    answer = server.http("GET", f"/admin/queues{path}")
    assert answer.status == 200, answer.body
    return answer.json


def test_list_and_describe(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client, fifo=True)
    policy = json.dumps(
        {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(dead)}", "maxReceiveCount": 3}
    )
    url = make_queue(client, fifo=True, PartitionCount=4, RedrivePolicy=policy)
    client.tag_queue(QueueUrl=url, Tags={"team": "a"})
    for group in ("a", "alpha", "beta", "gamma", "delta"):
        client.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=group)
    receive(client, url, 1)
    listed = {queue["name"]: queue for queue in get(sqs, "")["queues"]}
    assert list(listed) == sorted(listed)
    summary = listed[name_of(url)]
    assert (summary["fifo"], summary["partitions"], summary["visible"], summary["not_visible"]) == (True, 4, 4, 1)
    described = get(sqs, f"/{name_of(url)}")
    assert described["partition_messages"] == [1, 1, 1, 2]
    assert described["tags"] == {"team": "a"}
    assert described["attributes"]["PartitionCount"] == "4"
    assert get(sqs, f"/{name_of(dead)}")["dead_letter_sources"] == [name_of(url)]


def test_the_list_comes_whole_or_in_pages(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    made = sorted(name_of(make_queue(memory_sqs.anyone)) for _ in range(5))
    whole = get(memory_sqs, "")
    names = [queue["name"] for queue in whole["queues"]]
    assert (set(made) <= set(names), whole["cursor"]) == (True, None)

    told: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = get(memory_sqs, f"?limit=2&cursor={cursor}" if cursor else "?limit=2")
        assert len(page["queues"]) <= 2
        told += [queue["name"] for queue in page["queues"]]
        cursor = page["cursor"]
    assert told == names


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "cursor=nonsense", "cursor=", "page=2"])
def test_lists_that_are_refused(memory_sqs: SqsServer, query: str) -> None:
    answer = memory_sqs.http("GET", f"/admin/queues?{query}")
    assert (answer.status, answer.json["__type"]) == (400, "com.amazon.coral.service#InvalidParameterValueException")


def test_of_many_dead_letter_sources_the_first_are_named_and_all_are_counted(
    memory_sqs: SqsServer, make_queue: MakeQueue
) -> None:
    client = memory_sqs.anyone
    dead = make_queue(client)
    policy = json.dumps(
        {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(dead)}", "maxReceiveCount": 3}
    )
    sources = sorted(name_of(make_queue(client, RedrivePolicy=policy)) for _ in range(MAX_DEAD_LETTER_SOURCES + 2))
    described = get(memory_sqs, f"/{name_of(dead)}")
    assert described["dead_letter_sources"] == sources[:MAX_DEAD_LETTER_SOURCES]
    assert described["dead_letter_source_count"] == len(sources)


def test_peek_changes_nothing(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    url = make_queue(client, fifo=True, PartitionCount=4)
    sent = [f"g{group}:{number}" for number in range(3) for group in range(8)]
    for body in sent:
        client.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=body.partition(":")[0], MessageDeduplicationId=body
        )
    (leased,) = receive(client, url, 1)
    before = counts(client, url)
    seen: list[dict[str, Any]] = []
    cursor: str | None = "0.0"
    while cursor is not None:
        page = get(sqs, f"/{name_of(url)}/messages?limit=5&cursor={cursor}")
        assert len(page["messages"]) <= 5
        seen += page["messages"]
        cursor = page["cursor"]
    assert sorted(message["body"] for message in seen) == sorted(sent)
    assert [message["partition"] for message in seen] == sorted(message["partition"] for message in seen)
    for partition in range(4):
        numbers = [message["sequence"] for message in seen if message["partition"] == partition]
        assert numbers == sorted(numbers)
    (state,) = [message["state"] for message in seen if message["message_id"] == leased["MessageId"]]
    assert state == "leased"
    assert counts(client, url) == before == (23, 1, 0)
    assert {message["receive_count"] for message in seen} == {0, 1}
    assert receive(client, url, 1)[0]["Attributes"]["ApproximateReceiveCount"] == "1"


def test_peek_shows_attributes(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    attributes = {
        "t": {"DataType": "String", "StringValue": "text"},
        "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attributes)
    (message,) = get(memory_sqs, f"/{name_of(url)}/messages")["messages"]
    assert message["attributes"] == {"t": "text", "b": "AP8="}
    assert message["state"] == "waiting"


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "cursor=x", "cursor=1", "cursor=-9.0", "cursor=1.2.3"]
)
def test_peeks_that_are_refused(memory_sqs: SqsServer, make_queue: MakeQueue, query: str) -> None:
    url = make_queue(memory_sqs.anyone)
    answer = memory_sqs.http("GET", f"/admin/queues/{name_of(url)}/messages?{query}")
    assert (answer.status, answer.json["__type"]) == (400, "com.amazon.coral.service#InvalidParameterValueException")


def test_purge(sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(sqs.anyone)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="x")
    path = f"/admin/queues/{name_of(url)}/purge"
    assert sqs.http("POST", path).status == 200
    assert counts(sqs.anyone, url) == (0, 0, 0)
    again = sqs.http("POST", path)
    assert (again.status, again.json["__type"]) == (403, "com.amazonaws.sqs#PurgeQueueInProgress")


def test_redrive(sqs: SqsServer, make_queue: MakeQueue) -> None:
    client = sqs.anyone
    dead = make_queue(client)
    policy = json.dumps(
        {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(dead)}", "maxReceiveCount": 1}
    )
    source = make_queue(client, RedrivePolicy=policy)
    client.send_message(QueueUrl=source, MessageBody="x")
    receive(client, source, VisibilityTimeout=0)
    receive(client, source)
    wait_until(lambda: counts(client, dead)[0] == 1)
    path = f"/admin/queues/{name_of(dead)}/redrive"
    assert sqs.http("POST", path).json["task"]
    assert bodies(receive(client, source, WaitTimeSeconds=5)) == ["x"]
    assert get(sqs, f"/{name_of(dead)}")["move_tasks"]
    for body, status in ((b"{", 400), (b'{"destination": "not-there"}', 400), (b'{"per_second": 0}', 400)):
        assert sqs.http("POST", path, body).status == status


def test_what_is_not_there(memory_sqs: SqsServer) -> None:
    assert memory_sqs.http("GET", "/admin/queues/not-there").json["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert memory_sqs.http("GET", "/admin/elsewhere").status == 404
    assert memory_sqs.http("DELETE", "/admin/queues").status == 404


def signed_get(server: SqsServer, path: str, principal: tuple[str, str]) -> Answer:
    request = AWSRequest("GET", server.url + path)
    SigV4Auth(Credentials(*principal), "sqs", REGION).add_auth(request)
    return server.http("GET", path, headers=dict(request.headers.items()))


def test_only_admins(secured_sqs: SqsServer) -> None:
    assert secured_sqs.http("GET", "/admin/queues").status == 403
    refused = signed_get(secured_sqs, "/admin/queues", CLIENT)
    assert (refused.status, refused.json["__type"]) == (403, "com.amazon.coral.service#AccessDeniedException")
    assert signed_get(secured_sqs, "/admin/queues", ADMIN).status == 200


@pytest.mark.parametrize(
    "page",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_page_of_another_site_in_a_browser_can_do_nothing(
    sqs: SqsServer, make_queue: MakeQueue, page: dict[str, str]
) -> None:
    url = make_queue(sqs.anyone)
    sqs.anyone.send_message(QueueUrl=url, MessageBody="stays")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    deletion = f"Action=DeleteQueue&QueueUrl={url}".encode()
    target = {"X-Amz-Target": "AmazonSQS.DeleteQueue", "Content-Type": "application/x-amz-json-1.0"}
    answers = [
        sqs.http("POST", f"/admin/queues/{name_of(url)}/purge", b"", {**page, "Content-Type": "text/plain"}),
        sqs.http("POST", "/", deletion, {**page, **form}),
        sqs.http("GET", f"/?{deletion.decode()}", b"", page),
        sqs.http("POST", "/", json.dumps({"QueueUrl": url}).encode(), {**page, **target}),
    ]
    assert [answer.status for answer in answers] == [403] * 4
    assert bodies(receive(sqs.anyone, url, 1)) == ["stays"]


def test_programs_and_the_machine_s_own_pages_are_answered(sqs: SqsServer) -> None:
    for own in ({}, {"Origin": sqs.url}, {"Origin": sqs.url, "Sec-Fetch-Site": "same-origin"}):
        assert sqs.http("GET", "/admin/queues", b"", own).status == 200


@pytest.mark.parametrize("action", ["DeleteQueue", "PurgeQueue"])
def test_a_browser_without_a_page_deletes_nothing(memory_sqs: SqsServer, make_queue: MakeQueue, action: str) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="kept")
    headers = {"Sec-Fetch-Site": "none", "Content-Type": "application/x-www-form-urlencoded"}
    assert memory_sqs.http("POST", "/", f"Action={action}&QueueUrl={url}".encode(), headers).status == 403
    assert memory_sqs.http("POST", f"/admin/queues/{name_of(url)}/purge", b"", headers).status == 403
    assert counts(memory_sqs.anyone, url) == (1, 0, 0)


def test_a_peek_shows_no_token(memory_sqs: SqsServer, make_queue: MakeQueue) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody='{"id":"job-1","authToken":"v1.9.hunter2"}')
    (message,) = get(memory_sqs, f"/{name_of(url)}/messages")["messages"]
    assert message["body"] == '{"id":"job-1","authToken":"***"}'


@pytest.mark.parametrize("action", ["DeleteQueue", "PurgeQueue", "ReceiveMessage"])
def test_without_credentials_a_link_changes_nothing(memory_sqs: SqsServer, make_queue: MakeQueue, action: str) -> None:
    url = make_queue(memory_sqs.anyone)
    memory_sqs.anyone.send_message(QueueUrl=url, MessageBody="kept")
    path = f"/?Action={action}&QueueUrl={url}"
    opened = memory_sqs.http("GET", path, b"", {"sec-fetch-site": "none"})
    assert (opened.status, b"by POST" in opened.body) == (403, True)
    assert counts(memory_sqs.anyone, url) == (1, 0, 0)
    basic = {"Authorization": "Basic eDp5"}
    assert memory_sqs.http("GET", path, b"", basic).status == 403
    assert memory_sqs.http("GET", f"/?Action=GetQueueAttributes&QueueUrl={url}", b"", {}).status == 200


def test_a_server_without_postgresql_does_not_load_its_driver(memory_sqs: SqsServer) -> None:
    # A fifth of the time that a server takes to start.
    assert "psycopg" not in Path(f"/proc/{memory_sqs.pid}/maps").read_text()
