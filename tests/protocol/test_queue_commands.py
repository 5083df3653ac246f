"""`penstock queue` against a real server process."""

import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.cli.queue import redrive
from tests.rigs.penstock_process import PenstockProcess, wait_until
from tests.services.sqs_server import running

runner = CliRunner()
numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("sqs"), "--memory") as server:
        yield server.url


@pytest.fixture(autouse=True)
def environment(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SQS_ENDPOINT_OVERRIDE", server)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)


@pytest.fixture
def orders() -> str:
    return made("orders")


def made(stem: str, *options: str) -> str:
    """A queue that no other test knows."""
    head, dot, tail = stem.partition(".")
    name = f"{head}-{next(numbers)}{dot}{tail}"
    assert run("create", name, *options).exit_code == 0
    return name


def run(*args: str, input: str | bytes | None = None) -> Result:
    return runner.invoke(app, ["queue", *args], input=input)


def ok(*args: str, input: str | bytes | None = None) -> str:
    result = run(*args, input=input)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def as_json(*args: str, input: str | bytes | None = None) -> Any:
    return json.loads(ok(*args, "--json", input=input))


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def counters(name: str) -> tuple[int, int, int]:
    [found] = as_json("list", name)
    return found["visible"], found["in_flight"], found["delayed"]


def test_create_shows_the_queue_and_may_be_repeated(server: str) -> None:
    for _ in range(2):
        shown = ok("create", "shop", "--attribute", "VisibilityTimeout=60", "--tag", "team=shop")
    assert rows(shown) == [["shop", "standard", f"{server}/000000000000/shop"]]
    refused = run("create", "shop", "--attribute", "VisibilityTimeout=61")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: QueueNameExists: A queue already exists")


@pytest.mark.parametrize("args", [["split", "--fifo"], ["split.fifo"]], ids=" ".join)
def test_a_fifo_queue_is_made_by_option_or_name(args: list[str]) -> None:
    assert as_json("create", *args, "--partitions", "4")["name"] == "split.fifo"
    attributes = as_json("attrs", "split.fifo")
    assert (attributes["FifoQueue"], attributes["PartitionCount"]) == ("true", "4")


def test_list_counts_messages_by_prefix() -> None:
    first, second = made("counted"), made("counted.fifo")
    for _ in range(3):
        ok("send", first, "x")
    ok("send", first, "later", "--delay", "60")
    ok("receive", first)
    listed = ok("list", "counted-")
    assert listed.splitlines()[0].split("  ")[0] == "NAME"
    assert rows(listed) == [[first, "standard", "2", "1", "1"], [second, "fifo", "0", "0", "0"]]
    assert rows(ok("list", "nothing-")) == []


def test_attrs_shows_and_sets(orders: str) -> None:
    shown = dict(rows(ok("attrs", orders, "--set", "VisibilityTimeout=7", "--set", "DelaySeconds=1")))
    assert (shown["VisibilityTimeout"], shown["DelaySeconds"]) == ("7", "1")
    refused = run("attrs", orders, "--set", "Nonsense=1")
    assert (refused.exit_code, refused.stderr) == (1, "error: InvalidAttributeName: Unknown Attribute Nonsense.\n")


@pytest.mark.parametrize("command", ["attrs", "send", "receive", "peek", "purge", "delete", "redrive", "throttle"])
def test_a_queue_that_is_not_there(command: str) -> None:
    result = run(command, "nowhere", *(["x"] if command == "send" else []))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: QueueDoesNotExist: The specified queue does not exist.\n"


@pytest.mark.parametrize(
    ("args", "input", "body"),
    [(["hello"], None, "hello"), (["-"], "from input\n", "from input"), ([], "two\nlines\n\n", "two\nlines\n")],
)
def test_send_takes_the_body_or_reads_it(orders: str, args: list[str], input: str | None, body: str) -> None:
    sent = as_json("send", orders, *args, "--attribute", "kind=a=b", "--attribute", "size:Number=5", input=input)
    [message] = as_json("receive", orders)
    assert message["message_id"] == sent["message_id"]
    assert message["body"] == body
    assert message["attributes"] == {
        "kind": {"DataType": "String", "StringValue": "a=b"},
        "size": {"DataType": "Number", "StringValue": "5"},
    }


def test_a_queue_may_be_named_by_its_url(server: str, orders: str) -> None:
    url = f"{server}/000000000000/{orders}"
    ok("send", url, "hello")
    assert [message["body"] for message in as_json("peek", url)["messages"]] == ["hello"]
    assert as_json("receive", url)[0]["body"] == "hello"


def test_lines_keep_their_order_in_a_group() -> None:
    name = made("lines.fifo")
    lines = "".join(f"line {number}\n" for number in range(1, 26)) + "\r\n\nlast without an end"
    args = ["send", name, "--lines", "--group", "g", "--dedup-id", "load"]
    assert ok(*args, input=lines) == f"sent 26 messages to {name}\n"
    ok(*args, input=lines)  # the same ids: nothing is there twice
    bodies = [message["body"] for message in as_json("receive", name, "--max", "100", "--delete")]
    assert bodies == [*(f"line {number}" for number in range(1, 26)), "last without an end"]
    assert counters(name) == (0, 0, 0)


def test_lines_end_at_the_first_that_is_refused(orders: str) -> None:
    lines = "".join("bad \x01\n" if number == 13 else f"{number}\n" for number in range(1, 31))
    result = run("send", orders, "--lines", input=lines)
    assert result.exit_code == 1
    told, error = result.stderr.splitlines()
    assert told == "sent 19 messages before this:"
    assert error.startswith("error: InvalidMessageContents: ")
    assert error.endswith("(refused lines: 13)")
    assert counters(orders)[0] == 19


def test_receive_shows_a_table_and_deletes_only_when_asked(orders: str) -> None:
    ok("send", orders, "two\nlines \x9b31m")
    shown = ok("receive", orders, "--max", "3", "--visibility", "0")
    assert len(shown.splitlines()) == 2
    assert shown.splitlines()[0].split() == ["MESSAGE", "ID", "GROUP", "RECEIVES", "SENT", "BODY"]
    assert shown.splitlines()[1].endswith(r"  two\nlines \x9b31m")
    assert as_json("receive", orders, "--delete")[0]["receive_count"] == 2
    assert ok("receive", orders) == f"no message of {orders} is visible\n"
    assert as_json("receive", orders) == []
    assert counters(orders) == (0, 0, 0)


def test_ctrl_c_while_waiting_is_exit_code_130(server: str, orders: str, tmp_path: Path) -> None:
    receiver = PenstockProcess(tmp_path, "receive", ("queue", "receive", orders, "--wait", "20"))
    receiver.launch()

    def waits() -> bool:
        assert not receiver.has_ended, receiver.log()
        with urlopen(f"{server}/admin/queues/{orders}") as answer:
            return bool(json.load(answer)["waiting_receivers"])

    wait_until(waits)
    receiver.send(signal.SIGINT)
    assert (receiver.finish(), receiver.log()) == ((130, ""), "")


def test_peek_goes_through_all_pages_and_changes_nothing() -> None:
    name = made("peeked.fifo", "--partitions", "2", "--attribute", "ContentBasedDeduplication=true")
    for number in range(5):
        ok("send", name, f"body {number}", "--group", f"g{number}")
    seen: list[str] = []
    page = as_json("peek", name, "--limit", "2")
    while page["messages"]:
        seen += [message["body"] for message in page["messages"]]
        if page["cursor"] is None:
            break
        page = as_json("peek", name, "--limit", "2", "--cursor", page["cursor"])
    assert sorted(seen) == [f"body {number}" for number in range(5)]
    shown = ok("peek", name, "--limit", "2").splitlines()
    assert shown[0].split() == ["MESSAGE", "ID", "POSITION", "GROUP", "STATE", "RECEIVES", "SENT", "BODY"]
    assert shown[-1] == f"for more: --cursor {shown[-2].split()[1]}"
    assert counters(name) == (5, 0, 0)


def test_purge_asks_once_and_says_how_many(orders: str) -> None:
    for _ in range(3):
        ok("send", orders, "x")
    ok("receive", orders)
    declined = run("purge", orders, input="n\n")
    assert declined.exit_code == 1
    question = f"purge {orders} and drop 3 messages (2 visible, 1 in flight, 0 delayed)? [y/N]"
    assert question in declined.stderr
    assert counters(orders) == (2, 1, 0)
    agreed = run("purge", orders, input="y\n")
    assert agreed.exit_code == 0
    assert agreed.stdout.endswith(f"purged {orders} with 3 messages\n")
    assert counters(orders) == (0, 0, 0)
    again = run("purge", orders, "--yes")
    assert again.exit_code == 1
    assert again.stderr.startswith("error: PurgeQueueInProgress: ")


def test_purge_and_delete_do_not_ask_programs(orders: str) -> None:
    ok("send", orders, "x")
    assert as_json("purge", orders) == {"purged": orders, "messages": 1}
    assert as_json("delete", orders) == {"deleted": orders, "messages": 0}


def test_delete_asks_unless_told_not_to(orders: str) -> None:
    declined = run("delete", orders, input="")
    assert declined.exit_code == 1
    assert f"delete {orders} and drop 0 messages" in declined.stderr
    assert ok("delete", orders, "--yes") == f"deleted {orders} with 0 messages\n"
    assert as_json("list", orders) == []


@pytest.fixture
def dead_letters(orders: str) -> str:
    """A queue of three dead letters from `orders`."""
    dead = made("dead")
    policy = {"deadLetterTargetArn": as_json("attrs", dead)["QueueArn"], "maxReceiveCount": 1}
    ok("attrs", orders, "--set", f"RedrivePolicy={json.dumps(policy)}")
    for number in range(3):
        ok("send", orders, f"dead {number}")
    ok("receive", orders, "--max", "3", "--visibility", "0")
    ok("receive", orders, "--max", "3", "--visibility", "0")
    assert counters(dead) == (3, 0, 0)
    return dead


def test_redrive_moves_messages_back_and_shows_progress(
    orders: str, dead_letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "_POLL_S", 0.05)
    result = run("redrive", dead_letters, "--per-second", "2", "--watch")
    assert (result.exit_code, result.stdout) == (0, f"moved 3 of 3 messages of {dead_letters}\n")
    progress = [line for line in result.stderr.splitlines() if line]
    assert progress[-1] == "moved 3 of 3"
    assert "moved 2 of 3" in progress
    assert counters(orders) == (3, 0, 0)


def test_redrive_to_another_queue(dead_letters: str) -> None:
    target = made("target")
    assert as_json("redrive", dead_letters, "--to", target, "--watch") == {
        "status": "COMPLETED",
        "moved": 3,
        "to_move": 3,
    }
    assert counters(target) == (3, 0, 0)


def test_redrive_without_watching_gives_the_task(dead_letters: str) -> None:
    assert set(as_json("redrive", dead_letters, "--per-second", "1")) == {"task"}


def test_a_redrive_that_fails_is_exit_code_1(orders: str, dead_letters: str) -> None:
    # Sent here directly: where should it go?
    ok("send", dead_letters, "of no origin")
    result = run("redrive", dead_letters, "--watch")
    assert result.exit_code == 1
    assert f"error: the move of {dead_letters} is failed after" in result.stderr
    assert "CouldNotDetermineMessageSource" in result.stderr


def test_redrive_of_a_queue_that_takes_no_dead_letters(orders: str) -> None:
    result = run("redrive", orders)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: InvalidParameterValueException: Source queue must be")


def test_throttle_shows_sets_and_takes_away_limits(orders: str) -> None:
    none = [["send", "none", "none"], ["receive", "none", "none"], ["default", "none", "none"]]
    assert rows(ok("throttle", orders)) == none
    shown = rows(ok("throttle", orders, "--send", "10/0.5", "--default", "200/100"))
    assert shown == [["send", "10", "0.5"], ["receive", "none", "none"], ["default", "200", "100"]]
    assert as_json("throttle", orders)["send"] == {"capacity": 10, "refill_per_second": 0.5}
    ok("send", orders, "--lines", input="x\n" * 10)
    throttled = run("send", orders, "x")
    assert (throttled.exit_code, throttled.stderr) == (
        1,
        f"error: ThrottlingException: Rate exceeded for queue '{orders}' action 'Send'\n",
    )
    assert rows(ok("throttle", orders, "--off")) == none
    refused = run("throttle", orders, "--send", "1/1")
    assert refused.stderr.startswith("error: InvalidAttributeValue: ")


def test_requests_are_signed_for_a_server_with_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys.toml"
    entry = '[[key]]\naccess_key = "{0}"\nsecret = "the secret of {0}"\nrole = "{0}"\n'
    keys.write_text(entry.format("client") + entry.format("admin"))
    keys.chmod(0o600)
    with running(tmp_path, "--memory", "--credentials", str(keys)) as server:
        monkeypatch.setenv("SQS_ENDPOINT_OVERRIDE", server.url)
        unsigned = run("list")
        assert (unsigned.exit_code, unsigned.stderr) == (
            1,
            "error: MissingAuthenticationTokenException: The request is not signed.\n",
        )
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "client")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the secret of client")
        ok("create", "orders.fifo", "--attribute", "ContentBasedDeduplication=true")
        ok("send", "orders.fifo", "hello", "--group", "g")
        assert run("peek", "orders.fifo").stderr.startswith("error: AccessDeniedException: ")
        assert "only its admins may see them" in run("throttle", "orders.fifo").stderr
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "admin")
        assert run("list").stderr.startswith("error: InvalidSignatureException: ")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the secret of admin")
        assert as_json("peek", "orders.fifo", "--limit", "5")["messages"][0]["body"] == "hello"
        assert as_json("peek", "orders.fifo", "--cursor", "0.0")["cursor"] is None
