"""HTTP and gRPC servers with a certificate of their own, and queue URLs behind a proxy that has one."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen
from uuid import uuid4

import boto3  # type: ignore[import-untyped]
import grpc  # type: ignore[import-untyped]
import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from google.pubsub_v1 import PublisherClient, PubsubMessage
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from tests.rigs.penstock_process import ApiProcess, RouterProcess, ServedPart, wait_until
from tests.rigs.tls import authority_pem, certificate_and_key, trusting_context
from tests.services.pubsub_server import PubsubServer
from tests.services.sqs_server import ADMIN, REGION, SqsServer, bodies, credentials_file, receive, running


def pair(directory: Path, name: str = "localhost") -> tuple[Path, Path]:
    """Files with a new certificate and its key."""
    certificate, key = directory / "server.crt", directory / "server.key"
    for file, content in zip((certificate, key), certificate_and_key(name), strict=True):
        file.write_bytes(content)
    return certificate, key


def words_of(certificate: Path, key: Path) -> list[str]:
    return ["--tls-cert", str(certificate), "--tls-key", str(key)]


def options(directory: Path) -> list[str]:
    return words_of(*pair(directory))


def at_localhost(url: str) -> str:
    """The URL under the name in the certificate."""
    return url.replace("127.0.0.1", "localhost")


def test_sqs_by_tls(tmp_path: Path) -> None:
    trusted = tmp_path / "authority.pem"
    trusted.write_bytes(authority_pem())
    with running(tmp_path, "--memory", *options(tmp_path)) as server:
        assert server.url.startswith("https://")
        url = at_localhost(server.url)
        client = boto3.client(
            "sqs",
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id="anyone",
            aws_secret_access_key="nothing",
            verify=str(trusted),
            config=Config(retries={"total_max_attempts": 1}),
        )
        queue = client.create_queue(QueueName="q")["QueueUrl"]
        assert queue == f"{url}/000000000000/q"
        big = "x" * 1_000_000
        client.send_message(QueueUrl=queue, MessageBody=big)
        assert bodies(receive(client, queue)) == [big]
        assert receive(client, queue, WaitTimeSeconds=1) == []
        with pytest.raises(OSError, match=r"certificate verify failed|CERTIFICATE_VERIFY_FAILED"):
            urlopen(f"{url}/health/live", timeout=60)


def test_other_parts_by_tls(tmp_path: Path) -> None:
    def is_live(part: ServedPart) -> bool:
        assert part.url.startswith("https://")
        with urlopen(f"{at_localhost(part.url)}/health/live", timeout=60, context=trusting_context()) as answer:
            return bool(answer.status == 200)

    with ApiProcess(tmp_path, *options(tmp_path)) as api:
        assert is_live(api)
    with RouterProcess(tmp_path, {"processingPools": [], "queues": []}, *options(tmp_path)) as router:
        assert is_live(router)


def test_pubsub_by_tls(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path)
    with PubsubServer(tmp_path, "--memory", *words_of(certificate, key)) as server:
        with urlopen(f"{at_localhost(server.probes)}/health/live", timeout=60, context=trusting_context()) as answer:
            assert answer.status == 200
        port = int(server.address.rpartition(":")[2])
        publish_by_tls(port)
        assert ssl.get_server_certificate(("127.0.0.1", port)) == certificate.read_text()
        pair(tmp_path)
        wait_until(lambda: ssl.get_server_certificate(("127.0.0.1", port)) == certificate.read_text())
        publish_by_tls(port)
        key.write_text("half written")  # the one that works stays
        publish_by_tls(port)


def publish_by_tls(port: int) -> None:
    """Create a topic and publish with Google's client on a new connection that trusts our authority only."""
    trusted = grpc.ssl_channel_credentials(authority_pem())
    with grpc.secure_channel(f"localhost:{port}", trusted) as channel:
        client = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        topic = f"projects/p/topics/t-{uuid4().hex}"
        client.create_topic(name=topic)
        (message_id,) = client.publish(topic=topic, messages=[PubsubMessage(data=b"x")]).message_ids
        assert message_id


def test_a_renewed_certificate_is_taken(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path)
    with running(tmp_path, "--memory", *words_of(certificate, key)) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        first = ssl.get_server_certificate(address)
        assert first == certificate.read_text()
        pair(tmp_path)
        wait_until(lambda: ssl.get_server_certificate(address) == certificate.read_text())
        key.write_text("half written")  # the one that works stays
        wait_until(lambda: "half written" in server.log() or "is not used" in server.log())
        assert ssl.get_server_certificate(address) == certificate.read_text()


@pytest.mark.parametrize("break_it", ["absent", "not a key", "key of another"])
def test_files_that_do_not_fit(tmp_path: Path, break_it: str) -> None:
    certificate, key = pair(tmp_path)
    if break_it == "absent":
        key.unlink()
    elif break_it == "not a key":
        key.write_text("nothing")
    else:
        key.write_bytes(certificate_and_key("localhost")[1])
    server = SqsServer(tmp_path, "--memory", "--tls-cert", str(certificate), "--tls-key", str(key))
    refusal = server.refusal()
    assert str(key) in refusal
    assert "Traceback" not in refusal


def test_one_file_alone(tmp_path: Path) -> None:
    certificate, _ = pair(tmp_path)
    assert "--tls-key" in SqsServer(tmp_path, "--memory", "--tls-cert", str(certificate)).refusal()


# Behind a proxy


def created_url(server: SqsServer, headers: dict[str, str]) -> str:
    """The URL of a queue as the server tells a client."""
    path = "/?Action=CreateQueue&QueueName=q&Version=2012-11-05"
    body = server.http("POST", path, headers={"Accept": "application/json", **headers}).json
    return str(body["CreateQueueResponse"]["CreateQueueResult"]["QueueUrl"])


FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "queues.example"}


def trusting(*networks: str) -> dict[str, str]:
    return {"PENSTOCK_SQS__TRUSTED_PROXIES": ",".join(networks)}


def test_queue_urls_behind_a_trusted_proxy(tmp_path: Path) -> None:
    with running(tmp_path, "--memory", environment=trusting("10.0.0.0/8", "127.0.0.0/8")) as server:
        assert created_url(server, FORWARDED) == "https://queues.example/000000000000/q"
        assert created_url(server, {"X-Forwarded-Proto": "https"}) == f"https://{host_of(server)}/000000000000/q"
        assert created_url(server, {}) == f"http://{host_of(server)}/000000000000/q"
        nearest = {"X-Forwarded-Proto": "http, https", "X-Forwarded-Host": "evil.example, queues.example:8443"}
        assert created_url(server, nearest) == "https://queues.example:8443/000000000000/q"
        odd = {"X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "a b/c"}
        assert created_url(server, odd) == f"http://{host_of(server)}/000000000000/q"


def test_others_are_not_believed(memory_sqs: SqsServer, tmp_path: Path) -> None:
    assert created_url(memory_sqs, FORWARDED) == f"http://{host_of(memory_sqs)}/000000000000/q"
    with running(tmp_path, "--memory", environment=trusting("10.0.0.0/8")) as server:
        assert created_url(server, FORWARDED) == f"http://{host_of(server)}/000000000000/q"


def test_a_signature_for_the_name_of_the_proxy(tmp_path: Path) -> None:
    keys = credentials_file(tmp_path)
    with running(tmp_path, "--memory", "--credentials", str(keys), environment=trusting("127.0.0.1/32")) as server:
        request = AWSRequest("GET", "https://queues.example/?Action=ListQueues")
        SigV4Auth(Credentials(*ADMIN), "sqs", REGION).add_auth(request)
        signed: dict[str, Any] = {**request.headers, **FORWARDED}
        assert server.http("GET", "/?Action=ListQueues", headers=signed).status == 200
        other = {**signed, "X-Forwarded-Host": "other.example"}
        assert server.http("GET", "/?Action=ListQueues", headers=other).status == 403


def host_of(server: SqsServer) -> str:
    return urlsplit(server.url).netloc
