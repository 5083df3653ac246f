"""`penstock queue` without a server that is one: endpoints, keys, usage, and what is reported when no one answers."""

import json
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import parse_headers
from pathlib import Path
from socketserver import StreamRequestHandler, TCPServer

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.cli.output import printable
from penstock.cli.queue.connection import DEFAULT_ENDPOINT, endpoint_url, find_signer, region_of
from penstock.domain.errors import InvalidArgument, Unavailable
from penstock.edge.clock import SystemClock
from penstock.sqs.auth.signer import Signer
from penstock.sqs.client import BlockingSqsClient, SqsEndpoint

runner = CliRunner()


@pytest.fixture(autouse=True)
def no_aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SQS_ENDPOINT_OVERRIDE", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def run(*args: str, input: str | bytes | None = None) -> Result:
    return runner.invoke(app, ["queue", *args], input=input)


@contextmanager
def answering(
    status: int, body: bytes, connection: bytes = b"close"
) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    """A server that gives one answer to everything and hangs up; its URL, and what it was asked."""
    asked: list[tuple[str, dict[str, str], bytes]] = []

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            _, path, _ = self.rfile.readline().decode().split()
            headers = {name.lower(): value for name, value in parse_headers(self.rfile).items()}
            asked.append((path, headers, self.rfile.read(int(headers.get("content-length", "0")))))
            head = b"HTTP/1.1 %d -\r\nConnection: %b\r\nContent-Length: %d\r\n\r\n" % (status, connection, len(body))
            self.wfile.write(head + body)

    server = TCPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_endpoint_given_wins_then_the_variables_in_order() -> None:
    environment = {
        "SQS_ENDPOINT_OVERRIDE": "http://a",
        "AWS_ENDPOINT_URL_SQS": "http://b",
        "AWS_ENDPOINT_URL": "http://c",
    }
    assert endpoint_url("http://given", environment) == "http://given"
    for expected in ("http://a", "http://b", "http://c"):
        assert endpoint_url(None, environment) == expected
        environment[next(iter(name for name, url in environment.items() if url == expected))] = ""
    assert endpoint_url(None, environment) == DEFAULT_ENDPOINT


@pytest.mark.parametrize(
    ("url", "environment", "region"),
    [
        ("http://127.0.0.1:9324", {}, "us-east-1"),
        ("http://127.0.0.1:9324", {"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        ("http://127.0.0.1:9324", {"AWS_REGION": "eu-west-2", "AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-2"),
        ("https://sqs.eu-central-1.amazonaws.com", {"AWS_REGION": "eu-west-2"}, "eu-central-1"),
        ("https://eu-central-1.queue.amazonaws.com", {}, "eu-central-1"),
    ],
)
def test_the_region(url: str, environment: dict[str, str], region: str) -> None:
    assert region_of(url, environment) == region


def test_keys_of_the_environment_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = FILE\naws_secret_access_key = s%cret\n"
        "[other]\naws_access_key_id = OTHER\naws_secret_access_key = secret\naws_session_token = token\n"
    )
    environment = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert find_signer("http://x", environment) == Signer("FILE", "s%cret", "us-east-1")
    environment["AWS_PROFILE"] = "other"
    assert find_signer("http://x", environment) == Signer("OTHER", "secret", "us-east-1", "token")
    environment |= {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert find_signer("http://x", environment) == Signer("ENV", "secret", "us-east-1")


def test_without_keys_nothing_is_signed(tmp_path: Path) -> None:
    assert find_signer("http://x", {"HOME": str(tmp_path)}) is None


def test_a_broken_credentials_file_is_named_and_its_lines_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("aws_secret_access_key wJalrXUtnFEMI\n")
    with pytest.raises(Unavailable) as caught:
        find_signer("http://x", {"AWS_SHARED_CREDENTIALS_FILE": str(file)})
    assert str(file) in caught.value.message
    assert "wJalr" not in caught.value.message


@pytest.mark.parametrize("url", ["localhost:9324", "ftp://x", "http://", "http://x:port", "http://[x", "http://ö"])
def test_what_is_not_an_endpoint(url: str) -> None:
    with pytest.raises(InvalidArgument, match="is not an endpoint"):
        SqsEndpoint.parse(url)
    result = run("list", "--endpoint", url)
    assert result.exit_code == 2
    assert "is not an endpoint" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["create", "orders", "--attribute", "VisibilityTimeout"],
        ["create", "orders", "--tag", "=x"],
        ["create", "orders", "--partitions", "0"],
        ["attrs", "orders", "--set", "DelaySeconds"],
        ["send", "orders", "body", "--lines"],
        ["receive", "orders", "--wait", "21"],
        ["receive", "orders", "--max", "0"],
        ["peek", "orders", "--limit", "101"],
        ["throttle", "orders", "--send", "100"],
        ["throttle", "orders", "--receive", "/5"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_and_asks_nobody(args: list[str]) -> None:
    with answering(200, b"{}") as (url, asked):
        result = run("--endpoint", url, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert asked == []


@pytest.mark.parametrize(
    "args", [["list"], ["receive", "orders"], ["peek", "orders"], ["create", "orders"]], ids=" ".join
)
def test_when_nothing_listens_one_sentence_says_how_to_start_a_server(args: list[str]) -> None:
    with answering(200, b"{}") as (url, _):
        pass
    result = run(*args, "--endpoint", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"error: no server answers at {url}; start one with `penstock serve sqs`, or name another with --endpoint URL\n"
    )


def test_a_host_that_does_not_exist_is_no_bug() -> None:
    result = run("list", "--endpoint", "http://no-such-host.invalid:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: cannot talk to http://no-such-host.invalid:1: ")


@pytest.mark.parametrize("message_key", ["message", "Message"])
def test_an_error_of_the_server_is_its_code_and_message(message_key: str) -> None:
    body = json.dumps({"__type": "com.amazonaws.sqs#OverLimit", message_key: "Too\nmany."}).encode()
    with answering(400, body) as (url, _):
        result = run("receive", "orders", "--endpoint", url)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: OverLimit: Too many.\n")


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"<html>"), (502, b""), (200, b"<html>"), (200, b'{"QueueUrls": 1}')]
)
def test_a_server_of_something_else_is_told_apart(status: int, body: bytes) -> None:
    with answering(status, body) as (url, _):
        result = run("list", "--endpoint", url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {url} gave ")
    assert result.stderr.endswith("check that it is an SQS endpoint\n")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"not found"),
        (200, b"<html>"),
        (200, b"{}"),
        (400, b'{"__type": "com.amazon.coral#UnknownOperation"}'),
        (400, b'{"__type": "com.amazon.coral.service#UnknownOperationException"}'),
    ],
)
def test_only_a_penstock_server_can_be_peeked_at(status: int, body: bytes) -> None:
    with answering(status, body) as (url, _):
        result = run("peek", "orders", "--endpoint", url)
    assert result.exit_code == 1
    assert result.stderr == f"error: {url} is not a Penstock server, and only Penstock servers can show a queue\n"


def test_an_endpoint_may_have_a_path_and_the_session_token_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "ALICE", "SECRET_ACCESS_KEY": "secret", "SESSION_TOKEN": "token"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with answering(200, b"") as (url, asked):
        assert run("list", "--endpoint", f"{url}/sqs/").exit_code == 0
    [(path, headers, _)] = asked
    assert path == "/sqs"
    assert headers["x-amz-target"] == "AmazonSQS.ListQueues"
    assert headers["x-amz-security-token"] == "token"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=ALICE/")


def test_a_connection_that_the_server_has_closed_is_opened_anew() -> None:
    # It hangs up without having said so, as any server may that was left alone for a while.
    server = answering(200, b"{}", connection=b"keep-alive")
    with server as (url, asked), BlockingSqsClient(SqsEndpoint.parse(url), SystemClock()) as client:
        for _ in range(2):
            assert client.attributes("orders") == {}
            assert select.select([client._http._idle[0].sock], [], [], 30)[0]
    assert len(asked) == 2


def test_a_body_that_is_not_text_is_refused() -> None:
    with answering(200, b'{"QueueUrl": "http://x/1/orders"}') as (url, asked):
        result = run("send", "orders", "--endpoint", url, input=b"\xff")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: standard input is not UTF-8 text")
    assert [headers["x-amz-target"] for _, headers, _ in asked] == ["AmazonSQS.GetQueueUrl"]


def test_long_lines_do_not_share_a_request() -> None:
    answer = b'{"Successful": [{"Id": "1", "MessageId": "m", "MD5OfMessageBody": "d"}], "Failed": []}'
    lines = "".join(f"{letter * 150_000}\n" for letter in "abc")
    with answering(200, answer) as (url, asked):
        result = run("send", f"{url}/1/orders", "--lines", "--endpoint", url, "--json", input=lines)
    assert json.loads(result.stdout) == {"sent": 3}
    assert [len(json.loads(body)["Entries"]) for _, _, body in asked] == [1, 1, 1]


def test_bodies_cannot_play_with_the_terminal() -> None:
    assert printable("a\nb\x1b[2Jc\u009bd é 🙂") == "a\\nb\\x1b[2Jc\\x9bd é 🙂"
