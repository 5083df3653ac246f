"""Every endpoint of the router's HTTP API, over a real socket."""

from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pytest

from penstock.domain.errors import Unavailable
from penstock.domain.pointer import decode_pointer
from penstock.router.config.configuration import PoolConfiguration, RouterConfiguration
from penstock.router.monitoring.warnings import WarningCode, WarningSeverity
from tests.rigs.router_api import CONFIGURATION, Answer, ServedApi, served_api
from tests.rigs.router_surface import pool_view, queue_view


@pytest.fixture
def api() -> Iterator[ServedApi]:
    with served_api(test_endpoints=True) as served:
        yield served


def assert_problem(answer: Answer, status: int, said: str = "") -> None:
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body["status"] == status
    assert answer.body["code"]
    assert said in answer.body["detail"]


# Health


def test_live_and_ready_once_initialised_with_consumers_that_poll(api: ServedApi) -> None:
    assert api.ask("GET", "/health/live").status == 200
    assert api.ask("GET", "/health/ready").status == 200

    api.router.queue_views = [queue_view("orders", healthy=False)]
    answer = api.ask("GET", "/health/ready")
    assert answer.status == 503
    assert answer.body["checks"]["consumers"] == {"ok": False, "detail": "not polling: orders"}


def test_not_ready_while_no_queue_was_ever_reached(api: ServedApi) -> None:
    unreached = [msgspec.structs.replace(queue_view(name), last_poll_age_s=None) for name in ("orders", "slow")]
    api.router.queue_views = unreached
    answer = api.ask("GET", "/health/ready")
    assert answer.status == 503
    assert answer.body["checks"]["consumers"] == {"ok": False, "detail": "no queue has been reached yet"}

    api.router.queue_views = [*unreached, queue_view("reached")]
    assert api.ask("GET", "/health/ready").status == 200


def test_a_router_that_is_switched_off_is_live_and_ready_and_says_that_it_consumes_nothing() -> None:
    with served_api(enabled=False) as api:
        assert api.ask("GET", "/health/ready").status == 200
        status = api.ask("GET", "/monitoring/standby-status").body
        assert status == {"enabled": False, "primary": True, "initialised": True, "consuming": False}
        assert_problem(api.change("POST", "/config/reload"), 409, "disabled")


def test_the_overview_adds_everything_up(api: ServedApi) -> None:
    overview = api.ask("GET", "/monitoring").body

    totals = overview["totals"]
    assert (totals["pools"], totals["queues"], totals["queued"], totals["succeeded"]) == (2, 2, 10, 180)
    assert (totals["inFlight"], totals["received"], totals["malformed"]) == (28, 240, 2)
    assert overview["openBreakers"] == 1
    assert overview["sync"]["initialised"] is True
    assert overview["health"]["status"] == "WARNING"
    assert overview["health"]["reasons"] == ["the breaker of http://127.0.0.1:9/x is OPEN"]


def test_the_overview_is_healthy_when_nothing_is_wrong(api: ServedApi) -> None:
    api.router.breaker_views = []

    assert api.ask("GET", "/monitoring").body["health"] == {"status": "HEALTHY", "reasons": []}


def test_the_overview_is_degraded_by_a_stalled_consumer_and_by_critical_warnings(api: ServedApi) -> None:
    api.router.breaker_views = []
    api.router.queue_views = [queue_view("orders", healthy=False)]
    api.warnings.add(WarningCode.POOL_LIMIT, WarningSeverity.CRITICAL, "QueueManager", "too many")

    health = api.ask("GET", "/monitoring").body["health"]
    assert health["status"] == "DEGRADED"
    assert health["reasons"] == [
        "the consumer of queue orders does not poll",
        "1 critical warnings are not acknowledged",
    ]


# Pools and groups


def test_pools_are_listed(api: ServedApi) -> None:
    pools = api.ask("GET", "/monitoring/pools").body["pools"]

    assert [pool["code"] for pool in pools] == ["P", "pool/with space"]
    assert pools[1]["rateLimitPerMinute"] == 600
    assert pools[0]["oldestWaitingS"] == 1.5


@pytest.mark.parametrize(
    ("body", "change"),
    [
        ({"concurrency": 5}, (5, None, False)),
        ({"rateLimitPerMinute": 60}, (None, 60, False)),
        ({"rateLimitPerMinute": None}, (None, None, True)),
        ({"concurrency": 2, "rateLimitPerMinute": 30}, (2, 30, False)),
    ],
)
def test_a_pool_is_changed(
    api: ServedApi, body: dict[str, int | None], change: tuple[int | None, int | None, bool]
) -> None:
    answer = api.ask("PUT", f"/monitoring/pools/{quote('pool/with space', safe='')}", body)

    assert (answer.status, answer.body["code"]) == (200, "pool/with space")
    assert api.router.changes == [("pool/with space", *change)]


@pytest.mark.parametrize("body", [{"concurrency": 0}, {"concurrency": "5"}, {"concurrency": None}, {"size": 1}, [], 1])
def test_a_change_that_makes_no_sense_is_422(api: ServedApi, body: object) -> None:
    assert_problem(api.ask("PUT", "/monitoring/pools/P", body), 422, "the body is wrong")
    assert api.router.changes == []


def test_a_change_of_nothing_shows_the_pool(api: ServedApi) -> None:
    assert api.ask("PUT", "/monitoring/pools/P", {}).body["code"] == "P"
    assert api.router.changes == []


def test_a_pool_that_is_not_there_cannot_be_changed(api: ServedApi) -> None:
    assert_problem(api.ask("PUT", "/monitoring/pools/Q", {"concurrency": 1}), 404, "no pool 'Q'")
    assert api.router.changes == []


def test_a_decrease_that_does_not_come_to_pass_is_a_conflict(api: ServedApi) -> None:
    api.router.is_busy = True

    assert_problem(api.ask("PUT", "/monitoring/pools/P", {"concurrency": 1}), 409, "did not end in time")


def test_groups_are_listed_by_pool_and_limited(api: ServedApi) -> None:
    assert len(api.ask("GET", "/monitoring/groups").body["groups"]) == 20
    assert len(api.ask("GET", "/monitoring/groups?limit=3&pool=P").body["groups"]) == 3
    assert api.ask("GET", "/monitoring/groups?pool=none").body == {"groups": [], "cursor": None}


def test_the_groups_with_the_longest_queues_have_no_next_page(api: ServedApi) -> None:
    api.router.group_views.reverse()
    longest = api.ask("GET", "/monitoring/groups?order=longest&limit=2").body

    assert ([group["queued"] for group in longest["groups"]], longest["cursor"]) == ([20, 19], None)
    cursor = api.ask("GET", "/monitoring/groups?limit=2").body["cursor"]
    assert_problem(api.ask("GET", f"/monitoring/groups?order=longest&cursor={cursor}"), 400, "takes no cursor")


# Pages


def walk(api: ServedApi, path: str, name: str, field: str, limit: int) -> list[list[str]]:
    """A field of what each page of a list has."""
    found: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = api.ask("GET", f"{path}?limit={limit}" + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status == 200, answer
        found.append([each[field] for each in answer.body[name]])
        cursor = answer.body["cursor"]
    return found


def test_every_list_comes_in_pages_to_those_who_ask_for_pages(api: ServedApi) -> None:
    api.router.pool_views = [pool_view(code) for code in "cab"]
    # One that is not wanted any more settles what it has, beside its successor.
    api.router.queue_views = [queue_view(name) for name in ("z", "y", "x", "y")]
    api.seed_warnings()

    assert walk(api, "/monitoring/pools", "pools", "code", 2) == [["a", "b"], ["c"]]
    assert walk(api, "/monitoring/queues", "queues", "name", 2) == [["x", "y", "y"], ["z"]]
    assert walk(api, "/monitoring/consumer-health", "consumers", "queue", 3) == [["x", "y", "y"], ["z"]]
    endpoints = [["http://127.0.0.1:9/x"], ["https://shop.example:443/hook"]]
    assert walk(api, "/monitoring/circuit-breakers", "circuitBreakers", "endpoint", 1) == endpoints
    assert walk(api, "/warnings", "warnings", "code", 1) == [["CONFIGURATION"], ["ROUTING"]]
    groups = walk(api, "/monitoring/groups", "groups", "group", 7)
    assert [group for page in groups for group in page] == sorted(f"group-{number}" for number in range(20))
    messages = walk(api, "/monitoring/in-flight-messages", "messages", "messageId", 40)
    assert [len(page) for page in messages] == [40, 40, 40, 30]
    assert [message for page in messages for message in page] == [f"m{number}" for number in range(150)]


def test_who_asks_for_no_page_gets_all_in_the_routers_own_order(api: ServedApi) -> None:
    api.router.pool_views = [pool_view(code) for code in "cab"]

    whole = api.ask("GET", "/monitoring/pools").body
    assert ([pool["code"] for pool in whole["pools"]], whole["cursor"]) == (["c", "a", "b"], None)


def test_a_warning_that_comes_again_keeps_its_place_among_the_pages(api: ServedApi) -> None:
    for number in range(3):
        api.warnings.add(WarningCode.ROUTING, WarningSeverity.WARN, "router", f"warning {number}")
    first = api.ask("GET", "/warnings?limit=1").body
    api.warnings.add(WarningCode.ROUTING, WarningSeverity.WARN, "router", "warning 0")
    rest = api.ask("GET", f"/warnings?cursor={first['cursor']}").body

    told = [each["message"] for each in first["warnings"] + rest["warnings"]]
    assert (told, rest["warnings"][1]["count"]) == (["warning 2", "warning 1", "warning 0"], 2)


@pytest.mark.parametrize(
    "path", ["pools", "queues", "consumer-health", "circuit-breakers", "in-flight-messages", "groups"]
)
def test_a_cursor_that_no_list_made_is_refused(api: ServedApi, path: str) -> None:
    for cursor in ("nonsense", "WzFd", "%00", "e30"):
        assert_problem(
            api.ask("GET", f"/monitoring/{path}?cursor={cursor}"), 400, "send the cursor of the previous page"
        )
        assert_problem(api.ask("GET", "/warnings?cursor=nonsense"), 400, "cursor of the previous page")


# Queues


def test_queues_are_listed_without_passwords(api: ServedApi) -> None:
    queues = api.ask("GET", "/monitoring/queues").body["queues"]

    assert [queue["name"] for queue in queues] == ["orders", "slow"]
    assert queues[0]["uri"] == "stomp://me:***@broker:61613/queue/orders"


def test_consumer_health_names_who_does_not_poll(api: ServedApi) -> None:
    assert api.ask("GET", "/monitoring/consumer-health").body["healthy"] is True

    api.router.queue_views = [queue_view("orders"), queue_view("slow", healthy=False)]
    health = api.ask("GET", "/monitoring/consumer-health").body
    assert health["healthy"] is False
    assert [(each["queue"], each["healthy"]) for each in health["consumers"]] == [("orders", True), ("slow", False)]


def test_a_consumer_is_restarted(api: ServedApi) -> None:
    assert api.change("POST", "/monitoring/queues/orders/restart").body == {"queue": "orders"}
    assert_problem(api.change("POST", "/monitoring/queues/none/restart"), 404)
    assert api.router.restarted == ["orders"]


# Breakers


def test_breakers_are_listed_and_reset_by_their_endpoint(api: ServedApi) -> None:
    breakers = api.ask("GET", "/monitoring/circuit-breakers").body["circuitBreakers"]
    assert [(each["endpoint"], each["state"]) for each in breakers][1] == ("http://127.0.0.1:9/x", "OPEN")

    reset = "/monitoring/circuit-breakers/reset"
    assert api.ask("POST", reset, {"endpoint": "http://127.0.0.1:9/x"}).body == {"reset": 1}
    assert_problem(api.ask("POST", reset, {"endpoint": "http://127.0.0.1:9/y"}), 404, "no breaker")
    assert api.change("POST", "/monitoring/circuit-breakers/reset-all").body == {"reset": 2}


# In flight


def test_in_flight_messages_are_sorted_by_age_before_they_are_limited(api: ServedApi) -> None:
    api.router.tracked.reverse()
    messages = api.ask("GET", "/monitoring/in-flight-messages?limit=3").body["messages"]

    assert [message["messageId"] for message in messages] == ["m0", "m1", "m2"]
    assert len(api.ask("GET", "/monitoring/in-flight-messages").body["messages"]) == 100


def test_in_flight_messages_are_filtered(api: ServedApi) -> None:
    def found(query: str) -> int:
        return len(api.ask("GET", f"/monitoring/in-flight-messages?{query}").body["messages"])

    assert found("messageId=m7") == found("messageId=broker-m7") == 1
    assert found("pool=P&queue=orders&limit=1000") == 150
    assert found("pool=Q") == found("queue=slow") == 0


def test_a_message_is_looked_for_by_either_id(api: ServedApi) -> None:
    path = "/monitoring/in-flight-messages"
    assert api.ask("GET", f"{path}/check?messageId=m1").body == {"messageId": "m1", "inFlight": True}
    assert api.ask("GET", f"{path}/check?messageId=x").body == {"messageId": "x", "inFlight": False}
    assert_problem(api.ask("GET", f"{path}/check"), 400, "messageId")
    batch = api.ask("POST", f"{path}/check-batch", {"messageIds": ["m1", "x", "broker-m2"]}).body["messages"]
    assert [each["inFlight"] for each in batch] == [True, False, True]
    assert_problem(api.ask("POST", f"{path}/check-batch", {"messageIds": ["m"] * 1001}), 422)
    assert api.ask("GET", f"{path}/broker-m1").body["messageId"] == "m1"
    assert_problem(api.ask("GET", f"{path}/x"), 404, "no message 'x'")


# Warnings


def test_warnings_are_listed_filtered_acknowledged_and_removed(api: ServedApi) -> None:
    api.seed_warnings()
    listed = api.ask("GET", "/warnings").body
    assert [each["code"] for each in listed["warnings"]] == ["CONFIGURATION", "ROUTING"]
    assert listed["unacknowledged"] == {"INFO": 0, "WARN": 1, "ERROR": 1, "CRITICAL": 0}
    routing = listed["warnings"][1]

    assert api.change("POST", f"/warnings/{routing['id']}/acknowledge").body["acknowledged"] is True
    assert_problem(api.change("POST", "/warnings/none/acknowledge"), 404)

    def codes(query: str) -> list[str]:
        return [each["code"] for each in api.ask("GET", f"/warnings?{query}").body["warnings"]]

    assert codes("acknowledged=true") == codes("severity=WARN") == codes("source=QueueManager") == ["ROUTING"]
    assert codes("code=CONFIGURATION&acknowledged=false") == ["CONFIGURATION"]
    assert codes(f"since={routing['lastAtMs'] + 1}") == ["CONFIGURATION"]

    assert api.change("DELETE", "/warnings?olderThanS=1").body == {"count": 1}
    assert codes("") == ["CONFIGURATION"]
    assert api.change("POST", "/warnings/acknowledge-all").body == {"count": 1}


# Configuration


def test_a_reload_applies_what_the_source_says_now(api: ServedApi) -> None:
    api.source = RouterConfiguration((PoolConfiguration("N", 1),))

    assert api.change("POST", "/config/reload").body == {"pools": 1, "queues": 0}
    assert api.router.applied == [CONFIGURATION, api.source]


def test_a_reload_that_fails_keeps_the_old_configuration(api: ServedApi) -> None:
    api.source = Unavailable("nobody there")

    assert_problem(api.change("POST", "/config/reload"), 503, "nobody there")
    assert api.router.applied == [CONFIGURATION]
    assert api.sync.configuration == CONFIGURATION
    assert api.ask("GET", "/monitoring").body["health"]["reasons"][0] == "the last sync failed: nobody there"


# Seeding


@pytest.mark.parametrize(
    ("mode", "groups"),
    [
        ("unique", {f"msg-{number}" for number in range(100)}),
        ("1of8", {f"group-{number}" for number in range(8)}),
        ("single", {"single-group"}),
    ],
)
def test_messages_are_seeded_in_groups(api: ServedApi, mode: str, groups: set[str]) -> None:
    target = f"/api/seed/messages?count=100&endpoint=fast&queue=slow&messageGroupMode={mode}"
    answer = api.change("POST", target).body

    assert answer == {
        "queue": "slow",
        "endpoint": f"{api.url}/api/test/fast",
        "published": 100,
        "failed": 0,
        "firstFailure": None,
    }
    pointers = [decode_pointer(publication.body) for _, publication in api.published]
    assert {uri for uri, _ in api.published} == {"sqlite:///q.db?queue=slow"}
    assert {pointer.message_group_id for pointer in pointers} == groups
    assert {publication.group for _, publication in api.published} == groups
    assert len({pointer.id for pointer in pointers}) == 100
    assert {pointer.pool_code for pointer in pointers} == {"P"}
    assert api.closed_publishers == 1


def test_seeding_takes_the_first_queue_and_any_url(api: ServedApi) -> None:
    answer = api.change("POST", "/api/seed/messages?count=1&pool=Q&endpoint=https%3A%2F%2Fshop.example%2Fhook").body

    assert (answer["queue"], answer["endpoint"]) == ("orders", "https://shop.example/hook")
    assert decode_pointer(api.published[0][1].body).pool_code == "Q"


def test_seeding_tells_what_was_not_published(api: ServedApi) -> None:
    api.refuses = True
    answer = api.change("POST", "/api/seed/messages?count=3").body

    assert (answer["published"], answer["failed"]) == (2, 1)
    assert "hunter2" not in answer["firstFailure"]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("count=0", 400, "count"),
        ("count=10001", 400, "count"),
        ("queue=none", 404, "no queue 'none' (orders, slow)"),
        ("endpoint=ftp://x", 400, "endpoint"),
        ("endpoint=fast%0A", 400, "endpoint"),
        ("endpoint=http://", 400, "endpoint"),
        ("messageGroupMode=2of8", 400, "messageGroupMode"),
    ],
)
def test_seeding_refuses_what_it_cannot_do(api: ServedApi, query: str, status: int, said: str) -> None:
    assert_problem(api.change("POST", f"/api/seed/messages?{query}"), status, said)
    assert api.published == []


def test_seeding_says_that_the_broker_is_down(api: ServedApi) -> None:
    api.broker_is_down = True

    assert_problem(api.change("POST", "/api/seed/messages"), 503, "no broker")
    assert api.closed_publishers == 1


# Test endpoints


def test_every_test_endpoint_answers_in_its_way(api: ServedApi) -> None:
    def post(name: str) -> Answer:
        return api.ask("POST", f"/api/test/{name}", {"messageId": "m"})

    for name in ("fast", "success"):
        assert (post(name).status, post(name).body) == (200, {"ack": True})
    assert (post("ack-false").status, post("ack-false").body) == (200, {"ack": False, "delaySeconds": 5})
    assert (post("client-error").status, post("server-error").status, post("fail").status) == (400, 500, 500)
    assert (post("rate-limited").status, post("rate-limited").headers["retry-after"]) == (429, "5")
    assert [post("faulty").status for _ in range(4)] == [200, 500, 200, 200]
    assert post("none").status == 404


def test_test_endpoints_are_off_unless_switched_on() -> None:
    with served_api() as api:
        assert_problem(api.ask("POST", "/api/test/fast", {}), 404)
        assert_problem(api.change("POST", "/api/seed/messages?endpoint=fast"), 409, "router.test_endpoints")


# Strictness


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("/monitoring?x=1", "no query parameter 'x'"),
        ("/monitoring/groups?limit=1&limit=2", "given twice"),
        ("/monitoring/groups?limit=0", "limit"),
        ("/monitoring/groups?limit=1001", "limit"),
        ("/monitoring/groups?limit=ten", "'limit' must be a number"),
        ("/monitoring/groups?limit=null", "'limit' must be a number"),
        ("/monitoring/groups?limit=1.5", "limit"),
        ("/warnings?acknowledged=yes", "'acknowledged' must be a number, true or false"),
        ("/warnings?acknowledged=1", "acknowledged"),
        ("/warnings?severity=LOUD", "severity"),
        ("/warnings?source=%ff", "cannot be read"),
        ("/warnings?" + "&".join(f"x{number}=1" for number in range(60)), "cannot be read"),
    ],
)
def test_a_query_that_is_wrong_is_400(api: ServedApi, target: str, said: str) -> None:
    assert_problem(api.ask("GET", target), 400, said)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'"\\ud800"'])
def test_a_body_that_is_no_json_is_400(api: ServedApi, body: bytes) -> None:
    assert_problem(api.ask("PUT", "/monitoring/pools/P", body), 400, "the body is not JSON")


def test_a_body_of_another_type_is_415(api: ServedApi) -> None:
    headers = {"Content-Type": "text/plain", "X-Penstock": "1"}

    assert_problem(api.ask("PUT", "/monitoring/pools/P", b"{}", headers), 415)


def test_a_body_that_is_too_large_is_413_and_the_next_one_is_answered(api: ServedApi) -> None:
    assert_problem(api.ask("PUT", "/monitoring/pools/P", b" " * (1024 * 1024 + 1)), 413)
    assert api.ask("PUT", "/monitoring/pools/P", b'{"concurrency":1}' + b" " * (1024 * 1024 - 17)).status == 200


def test_another_method_is_405_and_says_which_are_allowed(api: ServedApi) -> None:
    answer = api.change("PATCH", "/warnings")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, HEAD"
    assert api.ask("HEAD", "/warnings").status == 200
    assert api.ask("HEAD", "/warnings").body == b""


def test_another_path_is_404(api: ServedApi) -> None:
    for path in ("/", "/monitoring/", "/monitoring/pools/", "/nothing", "/monitoring/queues//restart"):
        assert_problem(api.ask("GET", path), 404)


def test_a_bug_is_a_500_without_its_internals(api: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.router, "pools", lambda: 1 / 0)

    assert_problem(api.ask("GET", "/monitoring/pools"), 500, "the log has its stack trace")


# Who may ask


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"X-Penstock": "1", "Origin": "https://evil.example"},
        {"X-Penstock": "1", "Origin": "null"},
        {"X-Penstock": "1", "Sec-Fetch-Site": "cross-site"},
        {"X-Penstock": "1", "Sec-Fetch-Site": "none"},
        {"Content-Type": "application/json", "Origin": "http://127.0.0.1:1"},
    ],
)
def test_a_change_that_another_site_could_have_sent_is_refused(api: ServedApi, headers: dict[str, str]) -> None:
    assert_problem(api.ask("POST", "/config/reload", None, headers), 403)
    assert api.router.applied == [CONFIGURATION]


def test_a_change_from_our_own_page_is_allowed(api: ServedApi) -> None:
    own = {"Origin": api.url, "Sec-Fetch-Site": "same-origin"}

    assert api.ask("POST", "/config/reload", None, {**own, "X-Penstock": "1"}).status == 200
    assert api.ask("POST", "/config/reload", None, {**own, "Content-Type": "application/json"}).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("evil.example:8081", 403), ("localhost:8081", 200), ("[::1]:8081", 200), ("[", 403)],
)
def test_without_a_token_only_local_names_are_answered(api: ServedApi, host: str, status: int) -> None:
    assert api.ask("GET", "/monitoring", None, {"Host": host}).status == status


def test_with_a_token_only_those_who_know_it_are_answered() -> None:
    with served_api(api_token="a-long-secret", test_endpoints=True) as api:
        refused = api.ask("GET", "/monitoring")
        assert_problem(refused, 401)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert_problem(api.ask("GET", "/monitoring", None, {"Authorization": "Bearer other"}), 401)
        assert_problem(api.ask("GET", "/nothing"), 401)

        token = {"Authorization": "Bearer a-long-secret", "Host": "router.example"}
        assert api.ask("GET", "/monitoring", None, token).status == 200
        assert_problem(api.ask("POST", "/config/reload", None, token), 403)
        for free in ("/health/live", "/health/ready", "/metrics", "/api/test/fast"):
            assert api.ask("GET", free).status == 200


def test_answers_are_not_kept_or_guessed_at(api: ServedApi) -> None:
    for path in ("/monitoring", "/nothing"):
        headers = api.ask("GET", path).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


# Metrics


def test_metrics_tell_what_pools_queues_and_endpoints_do(api: ServedApi) -> None:
    pool = api.metrics.pool("P")
    pool.submitted(1)
    pool.rate_limited()
    pool.delivered(0.02, 0.3, "group-1")
    pool.failed(0.02, 0.3, "group-1")
    api.metrics.default_pool_used(3)
    api.router.pool_views = [pool_view("P")]
    text = api.ask("GET", "/metrics").body.decode()

    for line in (
        'penstock_router_pool_queued{pool="P"} 3.0',
        'penstock_router_pool_oldest_waiting_seconds{pool="P"} 1.5',
        'penstock_router_pool_messages_total{pool="P",result="success"} 1.0',
        'penstock_router_pool_messages_total{pool="P",result="failure"} 1.0',
        'penstock_router_pool_submitted_total{pool="P"} 1.0',
        'penstock_router_pool_rate_limit_waits_total{pool="P"} 1.0',
        'penstock_router_pool_processing_seconds_bucket{le="0.025",pool="P"} 2.0',
        'penstock_router_pool_waiting_seconds_count{pool="P"} 2.0',
        'penstock_router_group_queued{group="group-0",pool="P"} 20.0',
        'penstock_router_group_processing_seconds{group="group-1",pool="P"} 0.04',
        'penstock_router_group_waiting_seconds{group="group-1",pool="P"} 0.6',
        'penstock_router_queue_received_total{queue="orders"} 120.0',
        'penstock_router_queue_malformed_total{queue="slow"} 1.0',
        'penstock_router_breaker_state{endpoint="http://127.0.0.1:9/x"} 2.0',
        'penstock_router_breaker_rejected_total{endpoint="http://127.0.0.1:9/x"} 4.0',
        "penstock_router_default_pool_uses_total 3.0",
    ):
        assert line in text, line
