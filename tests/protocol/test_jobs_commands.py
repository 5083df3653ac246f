"""`penstock publish`, `jobs`, `subscriptions` and `pools` against a real API process."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.events.process.tokens import FILE_NAME, AuthTokens
from penstock.testing.receiver import RecordingReceiver, Reply
from tests.rigs.dispatch import request
from tests.rigs.penstock_process import ApiProcess, run_penstock
from tests.rigs.tls import certificate_and_key

UNKNOWN = "0HZXEQ5Y8JY5Z"
ISSUER = "https://id.example/token"

runner = CliRunner()
numbers = count(1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[str]:
    with ApiProcess(directory) as api:
        yield api.url


@pytest.fixture(autouse=True)
def environment(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_API__ENDPOINT", server)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def receiver() -> AsyncIterator[RecordingReceiver]:
    async with RecordingReceiver() as listening:
        yield listening


def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = runner.invoke(app, arguments, prog_name="penstock", input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def table(*arguments: str) -> list[list[str]]:
    """The rows of what a command prints, without the names of the columns."""
    return [line.split() for line in run(*arguments).stdout.splitlines()[1:]]


def answer(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def fresh(word: str) -> str:
    return f"{word}-{next(numbers)}"


def subscribed(target: str = "https://orders.example/hook", **options: str) -> tuple[str, str]:
    """A subscription to a type of its own; its name and that type."""
    name = fresh("shop")
    given = [part for option, value in options.items() for part in (f"--{option}", value)]
    run("subscriptions", "create", name, "--pattern", f"{name}:**", "--target", target, *given)
    return name, f"{name}:created"


# Events and jobs


def test_an_event_is_published_and_becomes_a_job() -> None:
    name, event_type = subscribed()
    ((event_id, shown_type, new, matching),) = table(
        "publish", event_type, "--key", "customer-1", "--data", '{"total": 7}'
    )
    assert (shown_type, new, matching) == (event_type, "yes", "1")

    ((job_id, _, status, job_type, shop, key, attempts, *waits),) = table("jobs", "list", "--event", event_id)

    assert (status, job_type, shop, key, attempts) == ("PENDING", event_type, name, "customer-1", "0")
    assert " ".join(waits) == "its turn"
    shown = run("jobs", "show", job_id).stdout
    assert all(word in shown for word in (job_id, "https://orders.example/hook", "BLOCK_ON_ERROR", event_id))


def test_the_same_id_is_published_once() -> None:
    options = ("publish", "orders:created", "--id", fresh("order"), "--source", "/shop")
    assert answer(*options)["events"][0]["isNew"] is True
    assert answer(*options)["events"][0]["isNew"] is False


def test_a_publication_that_no_subscription_matches_is_said() -> None:
    published = run("publish", fresh("unwanted"), "--wait", code=1)
    assert "no subscription matches" in published.stderr
    assert "not delivered within" not in published.stderr


def test_waiting_for_a_delivery_ends_with_what_became_of_it() -> None:
    name, event_type = subscribed()
    late = run("publish", event_type, "--wait", "--timeout", "0", code=1)
    assert f"not delivered to {name} at https://orders.example/hook: PENDING, 0 attempts." in late.stdout
    assert "not delivered within 0 s" in late.stderr


def test_a_pattern_is_not_a_type() -> None:
    assert "'orders:**' is a pattern" in run("publish", "orders:**", code=1).stderr


def test_data_comes_from_a_file_or_from_standard_input_and_need_not_be_json(tmp_path: Path, server: str) -> None:
    (tmp_path / "order.json").write_text('{"total": 8}')
    from_file = answer("publish", "orders:created", "--data", "@order.json")["events"][0]["id"]
    plain = run("publish", "orders:created", "--data", "@-", "--content-type", "text/plain", "--json", stdin="hi")
    from_input = json.loads(plain.stdout)["events"][0]["id"]

    assert request(server, "GET", f"/api/v1/events/{from_file}").body["event"]["data"] == {"total": 8}
    assert request(server, "GET", f"/api/v1/events/{from_input}").body["event"]["data"] == "hi"


def test_attributes_choose_between_subscriptions() -> None:
    name, event_type = subscribed(filter="region=eu,uk")
    run("publish", event_type, "--attribute", "region=us")
    run("publish", event_type, "--attribute", "region=uk")
    (subscription,) = [each for each in answer("subscriptions", "list")["subscriptions"] if each["name"] == name]
    assert len(answer("jobs", "list", "--subscription", subscription["id"])["jobs"]) == 1


def test_the_data_of_an_event_chooses_between_subscriptions() -> None:
    name, event_type = subscribed(filter="data.total >= 100 and data.currency in ('EUR', 'USD')")
    run("publish", event_type, "--data", '{"total": 99, "currency": "EUR"}')
    run("publish", event_type, "--data", '{"total": 100, "currency": "EUR"}')
    assert len(answer("jobs", "list", "--subscription", name)["jobs"]) == 1

    sample = ("subscriptions", "test", name, "--sample", event_type, "--data")
    assert "it matches" in run(*sample, '{"total": 120, "currency": "USD"}').stdout
    refused = run(*sample, '{"total": 120, "currency": "SEK"}', code=1)
    assert "the filter is data.total >= 100 and data.currency in ('EUR', 'USD')" in refused.stdout
    other = run("subscriptions", "test", name, "--sample", "carts:left", code=1)
    assert f"the type carts:left is not one of {name}:**" in other.stdout
    assert len(answer("jobs", "list", "--subscription", name)["jobs"]) == 1


def test_filters_are_replaced_together_and_a_wrong_one_names_the_place() -> None:
    name, _ = subscribed(filter="data.total > 5")

    changed = answer(
        "subscriptions", "update", name, "--filter", "region=eu", "--filter", "data.a == 1", "--filter", "data.b == 2"
    )
    wrong = run("subscriptions", "update", name, "--filter", "data.total = 5", code=1)
    removed = answer("subscriptions", "update", name, "--filter", "")

    assert [each["attribute"] for each in changed["filter"]] == ["region"]
    assert changed["filterExpression"] == "(data.a == 1) and (data.b == 2)"
    assert "the filter is wrong at character 12: equality is written ==" in wrong.stderr
    assert (removed["filter"], removed["filterExpression"]) == ([], "")
    run("subscriptions", "test", name, "--data", "1", code=2)


def test_a_job_is_created_once_per_key_and_cancelled() -> None:
    key = fresh("key")
    options = ("jobs", "create", "--target", "https://orders.example/hook", "--data", "[1]", "--idempotency-key", key)
    ((job_id, new),) = table(*options)
    ((again, second),) = table(*options)
    assert (again, new, second) == (job_id, "yes", "no")

    assert table("jobs", "cancel", job_id) == [[job_id]]

    shown = answer("jobs", "show", job_id)
    assert (shown["job"]["status"], shown["job"]["payload"], shown["attempts"]) == ("CANCELLED", [1], [])
    assert "CANCELLED" in run("jobs", "list", "--status", "cancelled").stdout


def test_a_long_list_tells_how_to_go_on() -> None:
    job_type = fresh("type")
    ids = [answer("jobs", "create", "--target", "https://a.example", "--type", job_type)["id"] for _ in range(3)]
    result = run("jobs", "list", "--type", job_type, "--limit", "2")
    cursor = result.stderr.split()[-1]
    assert [row[0] for row in table("jobs", "list", "--type", job_type, "--cursor", cursor)] == ids[:1]


def test_jobs_are_listed_by_when_they_were_created() -> None:
    job_type = fresh("type")
    (new,) = [answer("jobs", "create", "--target", "https://a.example", "--type", job_type)["id"]]
    listed = ("jobs", "list", "--type", job_type)
    assert [job["id"] for job in answer(*listed, "--since", "1h")["jobs"]] == [new]
    assert answer(*listed, "--until", "1h")["jobs"] == []
    assert answer(*listed, "--since", "+1h")["jobs"] == []


def test_a_job_waits_for_its_time_which_may_be_given_from_now() -> None:
    create = ("jobs", "create", "--target", "https://a.example", "--scheduled-for", "+1h", "--expires-at", "+2h")
    shown = answer("jobs", "show", answer(*create)["id"])["job"]
    due, expires = (datetime.fromisoformat(shown[name]) for name in ("dueAt", "expiresAt"))
    assert timedelta(minutes=59) < due - datetime.now(UTC) <= timedelta(hours=1)
    assert timedelta(minutes=59) < expires - due < timedelta(minutes=61)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_jobs_in_error_are_retried_and_ignored(server: str, directory: Path, receiver: RecordingReceiver) -> None:
    tokens = AuthTokens([(directory / "data" / FILE_NAME).read_bytes()])
    job_ids = []
    for _ in range(2):
        body = {"target": receiver.url, "group": fresh("group")}
        job_ids.append((await asyncio.to_thread(request, server, "POST", "/api/v1/jobs", body)).body["id"])
    receiver.script(Reply(410), Reply(410))
    for job_id in job_ids:
        token = tokens.token(job_id, wall_ms())
        headers = {"Authorization": f"Bearer {token}"}
        body = {"messageId": job_id}
        await asyncio.to_thread(request, server, "POST", "/api/dispatch/process", body, headers)

    def decide() -> None:
        retried, ignored = job_ids
        shown = run("jobs", "show", retried).stdout
        assert all(word in shown for word in ("ERROR", "REFUSED", "410"))
        assert table("jobs", "ignore", ignored) == [[ignored]]
        assert table("jobs", "retry", "--group", answer("jobs", "show", retried)["job"]["groupKey"]) == [[retried]]
        assert answer("jobs", "show", retried)["job"]["status"] == "PENDING"
        assert answer("jobs", "show", ignored)["job"]["status"] == "CANCELLED"
        assert "cannot be retried" in run("jobs", "retry", ignored, code=1).stderr

    await asyncio.to_thread(decide)


class Failing:
    """A subscription whose deliveries fail for good, driven as a router would."""

    def __init__(self, server: str, directory: Path, receiver: RecordingReceiver) -> None:
        self._server = server
        self._receiver = receiver
        self._tokens = AuthTokens([(directory / "data" / FILE_NAME).read_bytes()])
        self.name, self._type = subscribed(receiver.url, retry="")

    def publish(self, key: str) -> str:
        """An event of a key; the id of its job."""
        event = answer("publish", self._type, "--key", key)["events"][0]["id"]
        (job,) = answer("jobs", "list", "--event", event)["jobs"]
        return str(job["id"])

    def fail(self, job_id: str) -> None:
        """Let a delivery fail, so that the job ends in ERROR."""
        self._receiver.script(Reply(500))
        headers = {"Authorization": f"Bearer {self._tokens.token(job_id, wall_ms())}"}
        request(self._server, "POST", "/api/dispatch/process", {"messageId": job_id}, headers)
        assert answer("jobs", "show", job_id)["job"]["status"] == "ERROR"


async def test_groups_that_wait_are_shown_retried_and_skipped(
    server: str, directory: Path, receiver: RecordingReceiver
) -> None:
    def decide() -> None:
        shop = Failing(server, directory, receiver)
        key, other = fresh("order"), fresh("order")
        first, second, elsewhere = shop.publish(key), shop.publish(key), shop.publish(other)
        shop.fail(first)
        shop.fail(elsewhere)

        assert {row[2] for row in table("groups", "list", "--subscription", shop.name)} == {key, other}
        shown = run("groups", "show", key).stdout
        assert f"{shop.name}: job {first} is in ERROR: answered 500" in shown
        (waiting,) = table("jobs", "list", "--subscription", shop.name, "--status", "PENDING")
        assert (waiting[0], " ".join(waiting[7:])) == (second, f"job {first} is in ERROR: answered 500")

        assert table("groups", "retry", key) == [[first]]
        shop.fail(first)
        assert table("groups", "skip", key) == [[first]]
        assert answer("jobs", "show", first)["job"]["status"] == "CANCELLED"
        assert "is in ERROR" in run("groups", "skip", key, code=1).stderr
        shop.fail(second)
        assert answer("groups", "ignore", key, "--subscription", shop.name)["ids"] == [second]

        assert table("groups", "retry", "--subscription", shop.name, "--yes") == [[elsewhere]]
        shop.fail(elsewhere)
        assert answer("jobs", "retry", "--subscription", shop.name, "--since", "1h")["ids"] == [elsewhere]
        assert answer("jobs", "retry", "--subscription", shop.name)["ids"] == []

    await asyncio.to_thread(decide)


async def test_the_status_says_what_is_wrong_and_what_to_do(
    server: str, directory: Path, receiver: RecordingReceiver
) -> None:
    def look() -> None:
        shop = Failing(server, directory, receiver)
        shop.fail(shop.publish(fresh("order")))
        shown = run("status", code=1).stdout
        assert shown.splitlines()[1].split() == ["api", server, "HEALTHY"]
        assert f"1 key waits for a job of {shop.name} that was given up" in shown
        assert f"`penstock groups list --subscription {shop.name}`" in shown
        told = json.loads(run("status", "--json", code=1).stdout)
        (blocked,) = [each["blockedGroups"] for each in told["subscriptions"] if each["name"] == shop.name]
        assert (told["status"], blocked) == ("DEGRADED", 1)
        assert run("groups", "retry", "--subscription", shop.name, "--yes").exit_code == 0

    await asyncio.to_thread(look)


# Subscriptions and pools


def test_a_subscription_is_made_changed_paused_and_deleted() -> None:
    name = fresh("billing")
    created = run(
        *("subscriptions", "create", name, "--pattern", "orders:*", "--target", "https://a.example"),
        *("--mode", "next_on_error", "--retry", "1,2.5", "--timeout", "3", "--header", "X-A=b"),
    ).stdout
    assert "whsec_" in created

    (shown,) = [each for each in answer("subscriptions", "list")["subscriptions"] if each["name"] == name]
    assert (shown["mode"], shown["retryDelaysS"], shown["timeoutS"]) == ("NEXT_ON_ERROR", [1, 2.5], 3)
    assert shown["headers"] == {"x-a": "***"}
    assert answer("subscriptions", "update", name, "--target", "https://b.example")["target"] == "https://b.example"
    assert answer("subscriptions", "pause", shown["id"])["paused"] is True
    assert answer("subscriptions", "resume", name)["paused"] is False
    assert answer("subscriptions", "rotate-secret", name)["secrets"] == 2
    assert answer("subscriptions", "rotate-secret", name, "--finish")["secrets"] == 1
    assert answer("subscriptions", "rotate-secret", name, "--at-once")["secrets"] == 1
    key = answer("subscriptions", "rotate-secret", name, "--signature", "ed25519")["secret"]
    assert answer("subscriptions", "public-keys", name) == {"keys": [key]}
    assert table("subscriptions", "public-keys", name) == [[key]]
    assert "Aborted" in run("subscriptions", "delete", name, code=1, stdin="n\n").stderr
    assert table("subscriptions", "delete", name, "--yes") == [[shown["id"], "0"]]
    assert name not in run("subscriptions", "list").stdout


async def test_a_test_event_tells_by_its_exit_code_whether_it_was_accepted(receiver: RecordingReceiver) -> None:
    receiver.script(Reply(200, b"fine"), Reply(500, b"no\x1b[2J"))

    def try_out() -> None:
        name, _ = subscribed(receiver.url)
        assert "fine" in run("subscriptions", "test", name).stdout
        assert "answered 500: no" in run("subscriptions", "test", name, code=1).stdout
        shown = json.loads(run("subscriptions", "test", name, "--json").stdout)
        assert (shown["delivered"], shown["statusCode"]) == (True, 200)

    await asyncio.to_thread(try_out)


def test_pools_are_set_listed_and_deleted() -> None:
    code = fresh("POOL/slow")
    assert table("pools", "set", code, "--concurrency", "2", "--rate", "60") == [[code, "2", "60"]]
    assert table("pools", "set", code) == [[code, "10", "none"]]
    assert [code, "10", "none"] in table("pools", "list")
    assert table("pools", "delete", code) == [[code]]
    assert f"Pool not found: {code}" in run("pools", "delete", code, code=1).stderr


def test_a_subscription_gets_a_token_and_a_certificate() -> None:
    certificate, key = certificate_and_key("penstock")
    Path("both.pem").write_bytes(key + certificate)
    Path("cert.pem").write_bytes(certificate)
    Path("key.pem").write_bytes(key)
    name = f"oauth2-{next(numbers)}"
    more = ("--pattern", "oauth2:**", "--target", "https://a.example/", "--json", "--client-cert", "both.pem")
    oauth2 = ("--oauth2-url", ISSUER, "--oauth2-client", "me", "--oauth2-secret", "-", "--oauth2-scope", "events")
    made = run("subscriptions", "create", name, *more, *oauth2, stdin="hunter2\n").stdout
    shown = json.loads(made)["subscription"]
    assert shown["oauth2"] == {
        "tokenUrl": ISSUER,
        "clientId": "me",
        "clientSecret": "***",
        "scope": "events",
        "audience": "",
    }
    assert shown["clientCertificate"]["subject"] == "CN=penstock"
    update = ("subscriptions", "update", name, "--json")
    changed = json.loads(run(*update, "--no-oauth2", "--client-cert", "cert.pem", "--client-key", "key.pem").stdout)
    assert (changed["oauth2"], changed["clientCertificate"]["subject"]) == (None, "CN=penstock")
    assert json.loads(run(*update, "--no-client-cert").stdout)["clientCertificate"] is None
    assert "needs --oauth2-client and --oauth2-secret, too" in run(*update, "--oauth2-url", "x", code=2).stderr
    assert "cert.pem has no private key" in run(*update, "--client-cert", "cert.pem", code=2).stderr
    assert "cannot read none.pem" in run(*update, "--client-cert", "none.pem", code=2).stderr
    assert "--client-key needs --client-cert" in run(*update, "--client-key", "key.pem", code=2).stderr
    run("subscriptions", "delete", name, "--yes")


# What goes wrong


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("jobs", "show", UNKNOWN), 1, "Job not found"),
        (("jobs", "create", "--target", "nowhere"), 1, "not a URL to deliver to"),
        (("jobs", "list", "--status", "lost"), 2, "'lost' is not one of PENDING, QUEUED"),
        (("jobs", "create", "--mode", "sometimes"), 2, "not one of IMMEDIATE, NEXT_ON_ERROR"),
        (("subscriptions", "update", "x", "--body", "xml"), 2, "'xml' is not one of cloudevent, binary, slack"),
        (("subscriptions", "update", "x", "--unkeyed", "so"), 2, "'so' is not one of none, ordered"),
        (("subscriptions", "rotate-secret", "x", "--signature", "rsa"), 2, "'rsa' is not one of hmac, ed25519"),
        (("subscriptions", "update", "x", "--timeout", "0"), 2, "0.0 is not in the range"),
        (("jobs", "list", "--since", "lately"), 2, "'lately' is not a time: write 2030-01-31"),
        (("jobs", "create", "--target", "https://a.example", "--expires-at", "2h"), 1, "expiresAt"),
        (("jobs", "retry"), 2, "--group"),
        (("publish", "orders:created", "--data", "{"), 2, "not JSON"),
        (("publish", "orders:created", "--data", "@none.json"), 2, "cannot read none.json"),
        (("publish", "orders:created", "--attribute", "colour"), 2, "KEY=VALUE"),
        (("subscriptions", "pause", "nobody"), 1, "there is no subscription 'nobody'"),
        (("subscriptions", "update", "nobody"), 2, "there is nothing to change"),
        (("jobs", "list", "--subscription", "nobody"), 1, "there is no subscription 'nobody'"),
        (("jobs", "retry", UNKNOWN, "--subscription", "x"), 2, "give jobs, or --group, or a filter"),
        (("groups", "list", "--subscription", "nobody"), 1, "there is no subscription 'nobody'"),
        (("groups", "show", "no-such-key"), 1, "no job has the key 'no-such-key'"),
        (("groups", "retry"), 2, "give a key, or --subscription"),
        (("subscriptions", "update", "x", "--retry", "soon"), 2, "list of seconds"),
        (("pools", "list", "--endpoint", "ftp://x"), 2, "not the URL of an API"),
        (("pools", "list", "--endpoint", "http://127.0.0.1:9"), 1, "`penstock up`"),
        (("status", "--endpoint", "http://127.0.0.1:9"), 1, "`penstock up`"),
    ],
)
def test_what_goes_wrong_is_told_on_one_line(arguments: tuple[str, ...], code: int, told: str) -> None:
    result = run(*arguments, code=code)
    assert result.stdout == ""
    assert told in " ".join(result.stderr.replace("│", " ").split())


# The process


def test_the_server_stops_well_on_a_signal_and_keeps_what_it_was_told(tmp_path: Path) -> None:
    with ApiProcess(tmp_path) as api:
        run("pools", "set", "KEPT", "--endpoint", api.url)
        api.send(signal.SIGTERM)
        assert api.wait() == 0
        api.start()
        assert "KEPT" in run("pools", "list", "--endpoint", api.url).stdout


def test_with_a_token_the_commands_need_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ApiProcess(tmp_path, settings={"PENSTOCK_API__TOKEN": "hunter2"}) as api:
        assert "PENSTOCK_API__TOKEN" in run("pools", "list", "--endpoint", api.url, code=1).stderr
        monkeypatch.setenv("PENSTOCK_API__TOKEN", "hunter2")
        assert "CODE" in run("pools", "list", "--endpoint", api.url).stdout


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--host", "0.0.0.0", "--data", "d"), 1, "credentials"),
        (("--data", "d", "--database", "postgresql://db/x"), 2, "give one of"),
        (("--database", "postgresql://db/x"), 1, "jobs.auth_secret"),
    ],
)
def test_a_server_that_cannot_be_says_why(tmp_path: Path, options: tuple[str, ...], code: int, told: str) -> None:
    ran = run_penstock("serve", "api", "--port", "0", *options, cwd=tmp_path)
    assert (ran.returncode, told in ran.stderr) == (code, True), ran.stderr
