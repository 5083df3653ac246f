"""Queues in several shards: each node serves its share, and what crosses shards arrives once."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.sqs.nodes.shards import ShardMap, shard_names
from tests.cluster.rig import ClusterNode, nodes
from tests.rigs.penstock_process import run_penstock, wait_until
from tests.services.sqs_server import SqsServer, drain

SHARDS = 4
MAP = ShardMap(shard_names(SHARDS))


def is_even(node: ClusterNode, count: int) -> bool:
    """Whether every shard has an owner, and each node its share."""
    owners = Counter(node.owners().values())
    return None not in owners and len(owners) == count and max(owners.values()) - min(owners.values()) <= 1


def names_in_different_shards(suffix: str = "") -> list[str]:
    """One queue name for each shard."""
    found: dict[str, str] = {}
    number = 0
    while len(found) < SHARDS:
        found.setdefault(MAP.of_key(f"q{number}{suffix}"), f"q{number}{suffix}")
        number += 1
    return [found[shard] for shard in MAP.all]


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[list[ClusterNode]]:
    with nodes(tmp_path, [postgres_database] * 2, shards=SHARDS) as started:
        wait_until(lambda: is_even(started[0], 2))
        yield started


def test_queues_of_all_shards_are_one_set_of_queues_for_clients(pair: list[ClusterNode]) -> None:
    first, second = pair
    names = names_in_different_shards()
    urls = [pair[number % 2].anyone.create_queue(QueueName=name)["QueueUrl"] for number, name in enumerate(names)]
    assert len(set(first.owners().values())) == 2
    for number, url in enumerate(urls):
        pair[number % 2].anyone.send_message(QueueUrl=url, MessageBody=str(number))
    for number, url in enumerate(urls):
        (message,) = pair[(number + 1) % 2].anyone.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        assert message["Body"] == str(number)
        pair[number % 2].anyone.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    for node in pair:
        listed = [url.rpartition("/")[2] for url in node.anyone.list_queues()["QueueUrls"]]
        assert listed == sorted(names)
        paged = node.anyone.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 1})
        assert [page["QueueUrls"][0].rpartition("/")[2] for page in paged if page.get("QueueUrls")] == sorted(names)
        assert [each["name"] for each in node.http("GET", "/admin/queues").json["queues"]] == sorted(names)
        assert admin_pages(node) == sorted(names)
        assert {node.http("GET", f"/admin/queues/{name}").json["name"] for name in names} == set(names)
    watched = first.ask("PenstockWatchQueues", QueueUrls=urls, WaitTimeSeconds=0)
    assert watched.json == {}
    second.anyone.send_message(QueueUrl=urls[2], MessageBody="wake")
    watched = first.ask("PenstockWatchQueues", QueueUrls=urls, WaitTimeSeconds=20)
    assert watched.json == {"QueueUrls": [urls[2]]}


def admin_pages(node: ClusterNode) -> list[str]:
    names: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = node.http("GET", f"/admin/queues?limit=1{cursor and f'&cursor={cursor}'}").json
        names += [each["name"] for each in page["queues"]]
        cursor = page["cursor"]
    return names


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_dead_letters_and_moves_cross_shards(pair: list[ClusterNode], suffix: str) -> None:
    first, second = pair
    source_name, dead_name, other_name, _ = names_in_different_shards(suffix)
    kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
    dead = first.anyone.create_queue(QueueName=dead_name, Attributes=kind)["QueueUrl"]
    arn = arn_of(first, dead)
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    missing = json.dumps({"deadLetterTargetArn": arn.replace(dead_name, other_name), "maxReceiveCount": 1})
    refused = second.ask("CreateQueue", QueueName=source_name, Attributes={**kind, "RedrivePolicy": missing})
    assert "Dead letter target does not exist" in refused.json["message"]
    source = second.anyone.create_queue(QueueName=source_name, Attributes={**kind, "RedrivePolicy": redrive})[
        "QueueUrl"
    ]
    assert second.anyone.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [
        source.replace(first.url, second.url)
    ]
    group = {"MessageGroupId": "g"} if suffix else {}
    for number in range(5):
        first.anyone.send_message(QueueUrl=source, MessageBody=str(number), **group)
    wait_until(lambda: expire(second, source) and messages_in(first, dead) == 5)
    (letter, *_) = first.anyone.receive_message(
        QueueUrl=dead, AttributeNames=["All"], MaxNumberOfMessages=10, VisibilityTimeout=0
    )["Messages"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(first, source)
    second.anyone.set_queue_attributes(QueueUrl=source, Attributes={"RedrivePolicy": ""})
    second.anyone.create_queue(QueueName=other_name, Attributes={**kind, "RedrivePolicy": redrive})
    second.anyone.start_message_move_task(SourceArn=arn)
    wait_until(lambda: messages_in(second, source) == 5 and messages_in(first, dead) == 0)
    bodies = [message["Body"] for message in drain(first.anyone, source, 5)]
    assert bodies == list("01234") if suffix else sorted(bodies) == list("01234")


def expire(node: ClusterNode, url: str) -> bool:
    """Receive what is there, and let it be received again."""
    node.anyone.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return True


def arn_of(node: ClusterNode, url: str) -> str:
    attributes: dict[str, Any] = node.anyone.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])[
        "Attributes"
    ]
    return str(attributes["QueueArn"])


def messages_in(node: ClusterNode, url: str) -> int:
    attributes = node.anyone.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return sum(int(attributes[f"ApproximateNumberOfMessages{state}"]) for state in ("", "NotVisible", "Delayed"))


def test_a_newcomer_takes_its_share_with_the_leases_and_the_others_take_over(
    tmp_path: Path, postgres_database: str
) -> None:
    with nodes(tmp_path, [postgres_database], shards=SHARDS) as (first,):
        urls = [first.anyone.create_queue(QueueName=name)["QueueUrl"] for name in names_in_different_shards()]
        held = []
        for url in urls:
            first.anyone.send_message(QueueUrl=url, MessageBody="leased")
            (message,) = first.anyone.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
            held.append(message["ReceiptHandle"])
        second = ClusterNode(tmp_path, "node-1", postgres_database, shards=99)
        try:
            second.start()
            wait_until(lambda: is_even(second, 2))
            assert second.owners().keys() == set(MAP.all)
            for url in urls:
                assert second.anyone.receive_message(QueueUrl=url).get("Messages") is None
            first.kill()
            wait_until(lambda: set(second.owners().values()) == {"node-1"})
            for url, handle in zip(urls, held, strict=True):
                assert second.anyone.receive_message(QueueUrl=url).get("Messages") is None
                second.anyone.delete_message(QueueUrl=url, ReceiptHandle=handle)
                assert messages_in(second, url) == 0
        finally:
            second.kill()


def test_a_server_without_nodes_is_not_started_on_several_shards(tmp_path: Path, postgres_database: str) -> None:
    with nodes(tmp_path, [postgres_database], shards=2):
        pass
    refused = run_penstock("serve", "sqs", "--database", postgres_database, "--port", "0")
    assert refused.returncode != 0
    assert "are in 2 shards: start the server as a node" in refused.stderr


def test_queues_from_before_there_were_nodes_stay_one_shard(tmp_path: Path, postgres_database: str) -> None:
    alone = SqsServer(tmp_path / "alone", "--database", postgres_database)
    alone.start()
    url = alone.anyone.create_queue(QueueName="q")["QueueUrl"]
    alone.anyone.send_message(QueueUrl=url, MessageBody="x")
    assert alone.stop() == 0
    with nodes(tmp_path, [postgres_database], shards=SHARDS) as (node,):
        assert node.owners() == {"sqs": "node-0"}
        (message,) = node.anyone.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        assert message["Body"] == "x"
