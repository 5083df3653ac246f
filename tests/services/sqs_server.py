"""A real SQS server of ours in its own process, with the clients that tests talk to it by."""

import http.client
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from tests.rigs.penstock_process import ServedPart

REGION = "us-east-1"
ACCOUNT = "000000000000"
START_S = 120
ANYONE = ("anyone", "no secret is checked")
ADMIN = ("the-admin", "the secret of the admin")
CLIENT = ("a-client", "the secret of the client")
CREDENTIALS = "".join(
    f'[[key]]\naccess_key = "{key}"\nsecret = "{secret}"\nrole = "{role}"\n\n'
    for (key, secret), role in ((ADMIN, "admin"), (CLIENT, "client"))
)


class Answer(NamedTuple):
    """An HTTP answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class SqsServer(ServedPart):
    """One server process; `start` after `stop` or `kill` brings it back with the same data on the same port."""

    def __init__(self, directory: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, "server", ("sqs", *options), environment)

    def refusal(self) -> str:
        """What it says when it will not start."""
        self.launch()
        code, out = self.finish(START_S)
        assert code != 0
        return out + self.log()

    # Clients

    def client(self, principal: tuple[str, str] = ANYONE) -> Any:
        """A boto3 client that tries once, so that every answer is seen."""
        return boto3.client("sqs", **self._boto_options(principal))

    def resource(self) -> Any:
        """The boto3 resource."""
        return boto3.resource("sqs", **self._boto_options(ANYONE))

    @cached_property
    def anyone(self) -> Any:
        """The client of a server without credentials; also works after a restart, since the port stays."""
        return self.client()

    @cached_property
    def admin(self) -> Any:
        """The client of an admin principal."""
        return self.client(ADMIN)

    @cached_property
    def plain(self) -> Any:
        """The client of a principal that is not admin."""
        return self.client(CLIENT)

    def _boto_options(self, principal: tuple[str, str]) -> dict[str, Any]:
        config = Config(retries={"total_max_attempts": 1}, read_timeout=30, max_pool_connections=20)
        key, secret = principal
        return {
            "endpoint_url": self.url,
            "region_name": REGION,
            "aws_access_key_id": key,
            "aws_secret_access_key": secret,
            "config": config,
        }

    def connection(self) -> http.client.HTTPConnection:
        """A plain connection, kept alive."""
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=30)

    def http(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One plain HTTP request."""
        connection = self.connection()
        try:
            return exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def metrics(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """The samples of a metric that have these labels, by their other labels' values."""
        text = self.http("GET", "/metrics").body.decode()
        found: dict[tuple[str, ...], float] = {}
        for labelled, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", text, re.MULTILINE):
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labelled))
            if labels.items() <= pairs.items():
                found[tuple(value for key, value in pairs.items() if key not in labels)] = float(value)
        return found


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request on an open connection."""
    connection.request(method, path, body, dict(headers or {}))
    response = connection.getresponse()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def running(directory: Path, *options: str, environment: Mapping[str, str] | None = None) -> SqsServer:
    """A server for a `with` block, which stops it on the way out."""
    return SqsServer(directory, *options, environment=environment)


def credentials_file(directory: Path) -> Path:
    """A file with an admin and a client principal."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "keys.toml"
    path.write_text(CREDENTIALS)
    path.chmod(0o600)
    return path


# What tests do with a client over and over


def bodies(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The bodies of received messages."""
    return [message["Body"] for message in messages]


def receive(client: Any, url: str, most: int = 10, **parameters: Any) -> list[dict[str, Any]]:
    """The messages of one receive, with all their system attributes."""
    answer = client.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=most,
        MessageSystemAttributeNames=["All"],
        MessageAttributeNames=["All"],
        **parameters,
    )
    messages: list[dict[str, Any]] = answer.get("Messages", [])
    return messages


def drain(client: Any, url: str, count: int, **parameters: Any) -> list[dict[str, Any]]:
    """Receive and delete until this many messages came; fails when they do not come."""
    messages: list[dict[str, Any]] = []
    deadline_s = monotonic() + 60
    while len(messages) < count:
        assert monotonic() < deadline_s, f"{len(messages)} of {count} came"
        some = receive(client, url, WaitTimeSeconds=1, **parameters)
        for message in some:
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        messages += some
    return messages


def counts(client: Any, url: str) -> tuple[int, int, int]:
    """Visible, in flight, delayed."""
    names = [f"ApproximateNumberOfMessages{state}" for state in ("", "NotVisible", "Delayed")]
    attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    visible, in_flight, delayed = (int(attributes[name]) for name in names)
    return visible, in_flight, delayed
