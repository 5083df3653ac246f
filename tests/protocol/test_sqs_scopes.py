"""A queue belongs to the region and the account that the credentials of the request name."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.services.sqs_server import ACCOUNT, REGION, SqsServer, bodies, receive, running

ELSEWHERE = "eu-west-1"
OTHER_ACCOUNT = "123456789012"


def client(server: SqsServer, region: str = REGION, key: str = "anyone", secret: str = "no secret is checked") -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=server.url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


def arn_of(of: Any, url: str) -> str:
    attributes = of.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return str(attributes["QueueArn"])


def urls(of: Any, prefix: str) -> list[str]:
    listed: list[str] = of.list_queues(QueueNamePrefix=prefix).get("QueueUrls", [])
    return listed


@pytest.mark.parametrize("account", [ACCOUNT, OTHER_ACCOUNT])
def test_a_queue_is_seen_only_where_it_is(sqs: SqsServer, account: str) -> None:
    region = ELSEWHERE
    here, there = client(sqs), client(sqs, region, account if account != ACCOUNT else "anyone")
    name = f"scoped-{uuid4().hex}"
    url = here.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{sqs.url}/{ACCOUNT}/{name}"
    assert arn_of(here, url) == f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
    assert urls(there, name) == []
    with pytest.raises(there.exceptions.QueueDoesNotExist):
        there.get_queue_url(QueueName=name)
    with pytest.raises(there.exceptions.QueueDoesNotExist):
        there.send_message(QueueUrl=url, MessageBody="x")
    with pytest.raises(there.exceptions.QueueDoesNotExist):
        there.delete_queue(QueueUrl=url)
    other = there.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "77"})["QueueUrl"]
    assert other != url
    assert arn_of(there, other) == f"arn:aws:sqs:{region}:{account}:{name}"
    assert (urls(here, name), urls(there, name)) == ([url], [other])
    assert there.get_queue_url(QueueName=name)["QueueUrl"] == other
    there.send_message(QueueUrl=other, MessageBody="there")
    assert receive(here, url) == []
    assert bodies(receive(there, other)) == ["there"]
    with pytest.raises(here.exceptions.QueueDoesNotExist):
        here.send_message(QueueUrl=other, MessageBody="x")
    here.delete_queue(QueueUrl=url)
    assert urls(there, name) == [other]
    there.delete_queue(QueueUrl=other)


def test_an_account_lists_its_own_queues_and_admins_may_use_others(memory_sqs: SqsServer) -> None:
    """Without credentials everyone is admin."""
    here, there = client(memory_sqs), client(memory_sqs, key=OTHER_ACCOUNT)
    name = f"scoped-{uuid4().hex}"
    url, other = (each.create_queue(QueueName=name)["QueueUrl"] for each in (here, there))
    assert (urls(here, name), urls(there, name)) == ([url], [other])
    assert there.get_queue_url(QueueName=name)["QueueUrl"] == other
    assert there.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=ACCOUNT)["QueueUrl"] == url
    there.send_message(QueueUrl=url, MessageBody="from another account")
    assert bodies(receive(here, url)) == ["from another account"]
    here.delete_queue(QueueUrl=url)
    assert urls(there, name) == [other]
    there.delete_queue(QueueUrl=other)


def test_the_url_of_a_queue_elsewhere_is_an_endpoint(memory_sqs: SqsServer) -> None:
    there = client(memory_sqs, ELSEWHERE, OTHER_ACCOUNT)
    url = there.create_queue(QueueName=f"scoped-{uuid4().hex}")["QueueUrl"]
    path = urlsplit(url).path
    assert memory_sqs.http("POST", f"{path}?Action=SendMessage&MessageBody=by-its-url").status == 200
    assert bodies(receive(there, url)) == ["by-its-url"]
    there.delete_queue(QueueUrl=url)


def test_dead_letters_stay_in_the_region(memory_sqs: SqsServer) -> None:
    here, there = client(memory_sqs), client(memory_sqs, ELSEWHERE)
    name = f"scoped-{uuid4().hex}"
    far = arn_of(here, here.create_queue(QueueName=f"{name}-dead")["QueueUrl"])
    near_url = there.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    near = arn_of(there, near_url)

    def redrive(arn: str) -> dict[str, str]:
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}

    with pytest.raises(ClientError, match="Dead letter target does not exist"):
        there.create_queue(QueueName=name, Attributes=redrive(far))
    url = there.create_queue(QueueName=name, Attributes=redrive(near))["QueueUrl"]
    assert there.list_dead_letter_source_queues(QueueUrl=near_url)["queueUrls"] == [url]
    there.send_message(QueueUrl=url, MessageBody="x")
    receive(there, url, VisibilityTimeout=0)
    assert receive(there, url) == []
    (dead,) = receive(there, near_url, VisibilityTimeout=0)
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(there, url)
    with pytest.raises(here.exceptions.ResourceNotFoundException):
        here.start_message_move_task(SourceArn=near)
    there.start_message_move_task(SourceArn=near)
    while not receive(there, url, WaitTimeSeconds=1):
        continue


def test_queues_elsewhere_survive_a_restart(own_sqs: SqsServer) -> None:
    here, there = client(own_sqs), client(own_sqs, ELSEWHERE, OTHER_ACCOUNT)
    url, other = (each.create_queue(QueueName="kept")["QueueUrl"] for each in (here, there))
    there.send_message(QueueUrl=other, MessageBody="kept")
    own_sqs.stop()
    own_sqs.start()
    assert (urls(here, "kept"), urls(there, "kept")) == ([url], [other])
    assert bodies(receive(there, other)) == ["kept"]


def test_keys_of_a_credentials_file_have_accounts(tmp_path: Path) -> None:
    secret = "a secret of many letters"
    keys = tmp_path / "keys.toml"
    keys.write_text(
        f'[[key]]\naccess_key = "a"\nsecret = "{secret}"\nrole = "client"\naccount = "{OTHER_ACCOUNT}"\n'
        f'[[key]]\naccess_key = "b"\nsecret = "{secret}"\nrole = "admin"\n'
    )
    keys.chmod(0o600)
    with running(tmp_path, "--memory", "--credentials", str(keys)) as server:
        one, two = client(server, key="a", secret=secret), client(server, key="b", secret=secret)
        url = one.create_queue(QueueName="q")["QueueUrl"]
        assert arn_of(one, url) == f"arn:aws:sqs:{REGION}:{OTHER_ACCOUNT}:q"
        assert urls(two, "q") == []
        theirs = two.create_queue(QueueName="theirs")["QueueUrl"]
        with pytest.raises(one.exceptions.QueueDoesNotExist):
            one.send_message(QueueUrl=theirs, MessageBody="x")
        with pytest.raises(one.exceptions.QueueDoesNotExist):
            one.get_queue_url(QueueName="theirs", QueueOwnerAWSAccountId=ACCOUNT)
        for name in (f"{REGION}:{OTHER_ACCOUNT}:q", "q:", ":q"):  # a key is not a name
            with pytest.raises(two.exceptions.QueueDoesNotExist):
                two.get_queue_url(QueueName=name)
        two.send_message(QueueUrl=url, MessageBody="from an admin")
        assert bodies(receive(one, url)) == ["from an admin"]


def test_switched_off(tmp_path: Path) -> None:
    with running(tmp_path, "--memory", "--scopes", "one") as server:
        url = client(server).create_queue(QueueName="q")["QueueUrl"]
        there = client(server, ELSEWHERE, OTHER_ACCOUNT)
        assert urls(there, "q") == [url]
        assert arn_of(there, url) == f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"


def test_the_admin_surface_shows_all(memory_sqs: SqsServer) -> None:
    there = client(memory_sqs, ELSEWHERE, OTHER_ACCOUNT)
    name = f"scoped-{uuid4().hex}"
    url = there.create_queue(QueueName=name)["QueueUrl"]
    there.send_message(QueueUrl=url, MessageBody="x")
    key = f"{ELSEWHERE}:{OTHER_ACCOUNT}:{name}"
    assert key in [each["name"] for each in memory_sqs.http("GET", "/admin/queues").json["queues"]]
    assert len(memory_sqs.http("GET", f"/admin/queues/{key}/messages").json["messages"]) == 1
    there.delete_queue(QueueUrl=url)
