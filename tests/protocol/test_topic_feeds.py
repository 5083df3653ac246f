"""Messages that Google's client publishes become events: `penstock topics` with real servers."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.dispatch import request
from tests.rigs.penstock_process import ApiProcess, run_penstock, wait_until
from tests.services.pubsub_server import Clients, PubsubServer, clients_of, running

numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubsubServer]:
    directory = tmp_path_factory.mktemp("pubsub")
    with running(directory, "--data", str(directory / "data")) as started:
        yield started


@pytest.fixture(scope="module")
def clients(server: PubsubServer) -> Iterator[Clients]:
    with clients_of(server) as made:
        yield made


@pytest.fixture(scope="module", params=["inline", "pipeline"])
def api(
    request: pytest.FixtureRequest, server: PubsubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiProcess]:
    settings = {"PENSTOCK_JOBS__FAN_OUT": request.param}
    with ApiProcess(tmp_path_factory.mktemp("api"), "--topics", server.address, settings=settings) as started:
        yield started


def penstock(api: ApiProcess, *arguments: str, code: int = 0) -> Any:
    ran = run_penstock(*arguments, "--json", "--endpoint", api.url)
    assert ran.returncode == code, ran.stderr
    return json.loads(ran.stdout) if code == 0 else ran.stderr


def fed(api: ApiProcess) -> list[dict[str, Any]]:
    """All events, by the id that Penstock gave them."""
    directory = api.directory / "data"
    import sqlite3

    with sqlite3.connect(f"file:{directory / 'jobs.db'}?mode=ro", uri=True) as database:
        ids = [event_id for (event_id,) in database.execute("SELECT id FROM events ORDER BY received_ms, id")]
    database.close()
    return [request(api.url, "GET", f"/api/v1/events/{each}").body["event"] for each in ids]


def test_messages_become_events_once_each_in_order(api: ApiProcess, clients: Clients) -> None:
    name = f"projects/shop/topics/orders-{next(numbers)}"
    made = penstock(api, "topics", "feed", name, "--type", "orders:placed", "--type-attribute", "kind")
    assert made == {"topic": name, "type": "orders:placed", "typeAttribute": "kind", "tenant": ""}
    assert made in penstock(api, "topics", "list")["feeds"]

    sent = [(f"k{number % 3}", number) for number in range(60)]
    futures = [
        clients.publisher.publish(name, json.dumps({"number": number}).encode(), ordering_key=key, Region="eu")
        for key, number in sent
    ]
    ids = [future.result(timeout=30) for future in futures]
    other = clients.publisher.publish(name, b"text", kind="orders:noted").result(timeout=30)

    def events() -> list[dict[str, Any]]:
        return [each for each in fed(api) if each["source"].endswith(name)]

    wait_until(lambda: len(events()) == 61)
    found = events()
    assert sorted(each["id"] for each in found) == sorted([*ids, other])
    noted = next(each for each in found if each["id"] == other)
    assert (noted["type"], "partitionkey" in noted, noted["data_base64"]) == ("orders:noted", False, "dGV4dA==")
    for key in ("k0", "k1", "k2"):
        of_key = [each for each in found if each.get("partitionkey") == key]
        assert [each["data"]["number"] for each in of_key] == [number for each, number in sent if each == key]
        assert {(each["type"], each["region"]) for each in of_key} == {("orders:placed", "eu")}


def test_a_topic_feeds_no_more_when_it_is_told_so(api: ApiProcess, clients: Clients) -> None:
    name = f"short-{next(numbers)}"
    topic = penstock(api, "topics", "feed", name)["topic"]
    assert topic == f"projects/penstock/topics/{name}"
    clients.publisher.publish(topic, b"1").result(timeout=30)
    wait_until(lambda: any(each["type"] == name for each in fed(api)))

    assert penstock(api, "topics", "unfeed", name)["topic"] == topic

    clients.publisher.publish(topic, b"2").result(timeout=30)
    assert topic not in [each["topic"] for each in penstock(api, "topics", "list")["feeds"]]
    assert list(clients.publisher.list_topic_subscriptions(topic=topic)) == []
    assert "feeds no events" in penstock(api, "topics", "unfeed", name, code=1)
    assert [each["data"] for each in fed(api) if each["type"] == name] == [1]


def test_a_bad_name_and_an_api_without_a_server_are_errors(api: ApiProcess, tmp_path: Path) -> None:
    assert "topic" in penstock(api, "topics", "feed", "x", code=1)
    with ApiProcess(tmp_path) as alone:
        assert "this API knows no Pub/Sub server" in penstock(alone, "topics", "feed", "orders", code=1)
