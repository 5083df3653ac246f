"""Each page shows what is true, and each button does what it says, after it has asked."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from penstock.spark.progress import BatchProgress, QueryProgress
from tests.browser.receiver import Receiver
from tests.browser.site import Site
from tests.rigs.penstock_process import ServedPart

pytestmark = [pytest.mark.xdist_group("browser")]

HOSTILE = '<img src=x onerror="window.hacked=1">'


def opened(page: Page, place: str) -> Page:
    """The page at a place."""
    page.goto(f"/#/{place}")
    return page


def press(page: Page, button: str, *, within: Locator | None = None) -> None:
    """Press a button of the page, or of a part of it."""
    (within or page.locator("main")).get_by_role("button", name=button, exact=True).click()


def answer(page: Page, choice: str, *said: str) -> None:
    """Answer the question that stands above the page, which says what it will touch."""
    dialog = page.get_by_role("dialog")
    for text in said:
        expect(dialog).to_contain_text(text)
    dialog.get_by_role("button", name=choice, exact=True).click()
    expect(dialog).to_have_count(0)


def failing(site: Site, **fields: Any) -> tuple[Receiver, Any]:
    """A receiver that answers 500, and a subscription without retries."""
    receiver = site.receiver()
    receiver.status, receiver.answer = 500, b'{"error":"the ledger is closed"}'
    return receiver, site.subscribe(receiver, **{"retryDelaysS": [], **fields})


def test_the_overview_tells_how_long_the_oldest_has_waited(site: Site, page: Page) -> None:
    receiver = site.receiver()
    held, slow = site.subscribe(receiver), site.subscribe(receiver)
    site.ask("POST", f"/api/v1/subscriptions/{held['id']}/pause")
    site.publish(held, 1)
    opened(page, "overview")
    expect(page.locator("#oldest .note")).to_have_text(re.compile(r"^held back: \d"))

    receiver.delay_s = 3.0
    site.publish(slow, *range(3))
    expect(page.locator("#oldest .value")).to_have_text(re.compile(r"^[1-9]\S* m?s$"))
    receiver.delay_s = 0.0
    site.ask("POST", f"/api/v1/subscriptions/{held['id']}/resume")
    for subscription, jobs in ((held, 1), (slow, 3)):
        site.wait_for(subscription, ["COMPLETED"] * jobs)
    expect(page.locator("#oldest")).to_contain_text("0 sbefore delivery")
    page.locator("#oldest").click()
    expect(page).to_have_url(re.compile(r"#/jobs\?status=PENDING$"))


def test_the_overview_tells_what_was_delivered(site: Site, page: Page) -> None:
    opened(page, "overview")
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    # The page measures from its second look on, and only the last ten seconds; before, it shows what was stored.
    value, note = page.locator("#throughput .value"), page.locator("#throughput .note")
    while note.inner_text() != "last 10 seconds" or re.fullmatch("[–0]", value.inner_text()):
        site.publish(subscription, *range(10))
        page.wait_for_timeout(500)
    site.wait(lambda: set(site.statuses(subscription)) == {"COMPLETED"})

    expect(page.locator("#latency .value")).to_have_text(re.compile(r"^\d+ ms$|^\d\.\d s$"))
    # Other tests leave blocked keys behind: the page shows what the API says.
    expect(page.locator("#health .value")).to_have_text(re.compile("HEALTHY|WARNING|DEGRADED"))
    job = site.jobs(subscription)[-1]["id"]
    expect(page.get_by_role("link", name=job)).to_be_visible()
    total = site.get("/api/v1/jobs/counts")["counts"]["COMPLETED"]
    # Counted the less often the longer it takes, which it may on a busy machine.
    counts = page.locator('#job-counts [data-status="COMPLETED"]')
    expect(counts).to_have_text(f"COMPLETED {total}", timeout=120_000)
    # Counted by the minute in the database, so it is there after a reload.
    page.reload()
    past = page.get_by_role("img", name=re.compile("^Deliveries per minute by outcome. Now: delivered"))
    expect(past.locator("path.area")).to_have_count(4)


def test_the_overview_shows_what_the_database_counted_until_it_has_measured(site: Site, page: Page) -> None:
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    site.publish(subscription, 1)
    site.wait_for(subscription, ["COMPLETED"])
    # The measurements never come.
    page.route("**/api/v1/metrics", lambda _: None)
    opened(page, "overview")

    expect(page.locator("#throughput .note")).to_have_text("last 5 minutes")
    expect(page.locator("#success-rate .value")).to_have_text(re.compile(r"^[\d.]+ %$"))
    expect(page.locator("#latency .value")).to_have_text(re.compile(r"^\d+ ms$|^[\d.]+ s$"))


def test_the_overview_says_what_is_wrong_and_what_to_do(site: Site, page: Page) -> None:
    receiver = site.receiver()
    receiver.status = 500
    subscription = site.subscribe(receiver, retryDelaysS=[])
    site.publish(subscription, 1)
    site.wait_for(subscription, ["ERROR"])

    opened(page, "overview")
    reasons = page.locator("#health-reasons")
    expect(reasons).to_contain_text(f"1 key waits for a job of {subscription['name']} that was given up")
    expect(reasons).to_contain_text(f"penstock groups list --subscription {subscription['name']}")
    expect(page.locator("#health .value")).to_have_text("DEGRADED")
    expect(page.get_by_label("Subscriptions").get_by_role("link", name=subscription["name"])).to_be_visible()
    site.ask("DELETE", f"/api/v1/subscriptions/{subscription['id']}")


def test_the_overview_says_why_a_chart_is_empty(page: Page) -> None:
    opened(page, "overview")
    expect(page.get_by_role("img", name="Waiting messages. Nothing is waiting.")).to_be_visible()


def test_a_queue_is_shown_partition_by_partition_and_purged_only_after_a_yes(site: Site, page: Page) -> None:
    name = "shop.fifo"
    url = site.queue(
        name,
        FifoQueue="true",
        ContentBasedDeduplication="true",
        DeduplicationScope="messageGroup",
        FifoThroughputLimit="perMessageGroupId",
        PartitionCount="4",
    )
    for number in range(12):
        site.sqs.send_message(QueueUrl=url, MessageBody=f"{HOSTILE}{number}", MessageGroupId=f"g{number % 5}")

    opened(page, "queues")
    row = page.get_by_role("row", name=re.compile(name))
    expect(row.get_by_role("cell").nth(2)).to_have_text("12")
    row.get_by_role("link").click()
    expect(page.locator("#visible .value")).to_have_text("12")
    held = site.described(name)["partition_messages"]
    told = ", ".join(f"{index}: {messages}" for index, messages in enumerate(held))
    expect(page.get_by_role("img", name=f"Messages per partition. {told}")).to_be_visible()
    expect(page.get_by_text(HOSTILE, exact=False).first).to_be_visible()

    press(page, "Purge…")
    answer(page, "Cancel", "All 12 messages", name)
    assert site.described(name)["visible"] == 12
    press(page, "Purge…")
    answer(page, "Delete 12 messages")
    expect(page.locator("#visible .value")).to_have_text("0")
    assert site.described(name)["visible"] == 0
    expect(page.get_by_text("All partitions are empty.")).to_be_visible()
    expect(page.locator("#oldest .value")).to_have_text("–")


def test_dead_letters_are_moved_back(site: Site, page: Page) -> None:
    dead = site.queue("dead")
    arn = site.described("dead")["arn"]
    alive = site.queue("alive", RedrivePolicy=f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"1"}}')
    site.sqs.send_message(QueueUrl=alive, MessageBody="poison")

    def is_dead() -> bool:
        site.sqs.receive_message(QueueUrl=alive, VisibilityTimeout=0)
        return bool(site.described("dead")["visible"] == 1)

    site.wait(is_dead)
    opened(page, "queues/dead")
    press(page, "Redrive dead letters…")
    answer(page, "Move 1 message", "alive")
    site.wait(lambda: site.described("alive")["visible"] == 1)
    expect(page.locator("#visible .value")).to_have_text("0")
    assert dead


def test_a_pool_is_changed_for_the_router_and_for_good(site: Site, page: Page) -> None:
    opened(page, "pools")
    press(page, "New pool…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Code, as used by subscriptions").fill("painters")
    dialog.get_by_label("Concurrent deliveries").fill("4")
    answer(page, "Create")
    row = page.get_by_role("row", name=re.compile("^painters"))
    expect(row.get_by_role("cell").nth(1)).to_have_text("4")

    press(page, "Edit…", within=row)
    dialog.get_by_label("Concurrent deliveries").fill("7")
    dialog.get_by_label("Deliveries per minute").fill("600")
    answer(page, "Save")
    expect(row.get_by_role("cell").nth(1)).to_have_text("7")
    expect(row.get_by_role("cell").nth(2)).to_have_text("600")
    of_router = {pool["code"]: pool for pool in site.get("/api/router/monitoring/pools")["pools"]}
    assert (of_router["painters"]["concurrency"], of_router["painters"]["rateLimitPerMinute"]) == (7, 600)
    assert site.get("/api/v1/pools/painters") == {"code": "painters", "concurrency": 7, "rateLimitPerMinute": 600}


def breaker_of(site: Site, receiver: Receiver) -> str:
    """The state of the breaker of a receiver; nothing if there is none."""
    found = site.get("/api/v1/breakers")["circuitBreakers"]
    return next((str(each["state"]) for each in found if each["endpoint"] == receiver.url), "")


def test_an_open_breaker_is_shown_and_reset(site: Site, page: Page) -> None:
    receiver, subscription = failing(site, mode="IMMEDIATE")
    site.publish(subscription, *range(10))
    site.wait(lambda: breaker_of(site, receiver) == "OPEN")
    opened(page, "pools")
    row = page.get_by_role("row").filter(has_text=receiver.url)
    expect(row).to_contain_text("OPEN")
    press(page, "Reset…", within=row)
    answer(page, "Reset", receiver.url)
    expect(row).to_contain_text("CLOSED")
    assert breaker_of(site, receiver) == "CLOSED"


def test_a_blocked_group_is_found_and_retried(site: Site, page: Page) -> None:
    receiver, subscription = failing(site)
    site.publish(subscription, 1, 2, key="order-77")
    site.wait_for(subscription, ["ERROR", "PENDING"])
    first, _ = site.jobs(subscription)

    opened(page, "groups")
    page.get_by_label("Key or group").fill("order-77")
    press(page, "Find")
    lane = page.locator(".lane")
    expect(lane).to_contain_text(f"Blocked: job {first['id']} is in ERROR: answered 500")
    expect(page.get_by_role("link", name=f"{subscription['name']} · order-77")).to_be_visible()
    receiver.status = 200
    press(page, "Retry…", within=lane)
    answer(page, "Retry", first["id"], receiver.url)
    site.wait_for(subscription, ["COMPLETED", "COMPLETED"])
    assert site.numbers(receiver) == [1, 2]
    expect(lane).to_contain_text("Not blocked: all jobs are finished")


def test_what_blocks_a_group_is_ignored_or_skipped(site: Site, page: Page) -> None:
    receiver, given_up = failing(site)
    site.publish(given_up, 1, 2, key="order-78")
    site.wait_for(given_up, ["ERROR", "PENDING"])
    opened(page, f"groups?key={given_up['id']}:order-78")
    receiver.status = 200
    press(page, "Ignore…", within=page.locator(".lane"))
    answer(page, "Ignore", "never gets it")
    site.wait_for(given_up, ["CANCELLED", "COMPLETED"])
    assert site.numbers(receiver) == [2]

    receiver, waiting = failing(site, retryDelaysS=[3600])
    site.publish(waiting, 1, 2, key="order-79")
    site.wait(lambda: [job["deliveries"] for job in site.jobs(waiting)] == [1, 0])
    opened(page, f"groups?key={waiting['id']}:order-79")
    lane = page.locator(".lane")
    expect(lane).to_contain_text("waits for its next attempt")
    receiver.status = 200
    lane.get_by_role("button", name="Skip…").first.click()
    answer(page, "Skip")
    site.wait_for(waiting, ["CANCELLED", "COMPLETED"])


def test_groups_have_their_charts(site: Site, page: Page) -> None:
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    site.publish(subscription, *range(60), key="order-80")
    site.wait_for(subscription, ["COMPLETED"] * 60)
    opened(page, "groups")
    heat = page.get_by_role("img", name=re.compile("^Processing latency by group and time"))
    expect(heat).to_have_attribute("aria-label", re.compile(f"{subscription['name']} · order-80"))
    expect(heat.locator("rect:not(.heat-none)").first).to_be_visible()
    for label in ("Messages per group", "Workers used by group", "Queue depth by group"):
        expect(page.get_by_role("img", name=re.compile(f"^{label}"))).to_be_visible()


def test_the_latency_of_messages_that_are_not_jobs_is_shown_too(site: Site, page: Page) -> None:
    receiver = site.receiver()
    opened(page, "groups")
    heat = page.get_by_role("img", name=re.compile("^Processing latency by group and time"))
    query = f"count=40&messageGroupMode=single&endpoint={quote(receiver.url, safe='')}"
    request = Request(f"{site.addresses['router']}/api/seed/messages?{query}", b"", {"X-Penstock": "1"}, method="POST")
    with urlopen(request, timeout=60) as answer:
        assert json.loads(answer.read())["published"] == 40
    expect(heat).to_have_attribute("aria-label", re.compile("single-group"))


def test_a_key_is_found_whoever_its_jobs_are_owed_to_page_by_page(site: Site, page: Page) -> None:
    receiver = site.receiver()
    first = site.subscribe(receiver)
    others = [site.subscribe(receiver, pattern=first["pattern"]) for _ in range(54)]
    try:
        site.publish(first, 1, key="order-of-many")

        opened(page, "jobs?q=order-of-many")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(50)
        press(page, "Show older")
        expect(rows).to_have_count(55)
        expect(page.get_by_role("button", name="Show older")).to_be_hidden()
    finally:
        for each in others:
            site.ask("DELETE", f"/api/v1/subscriptions/{each['id']}")


def test_a_job_is_found_in_every_way_and_told_attempt_by_attempt(site: Site, page: Page) -> None:
    receiver, subscription = failing(site, retryDelaysS=[0.1])
    (event,) = site.publish(subscription, 7, key="order:90")
    site.wait_for(subscription, ["ERROR"])
    (job,) = site.jobs(subscription)

    for search in (
        f"q={job['id']}",
        f"q={event}",
        "q=order:90",
        f"q={subscription['id']}:order:90",
        f"q=order:90&subscriptionId={subscription['id']}",
        f"subscriptionId={subscription['id']}&status=ERROR",
        f"type={job['type']}&from={job['createdAt'][:10]}T00:00:00",
    ):
        opened(page, f"jobs?{search}")
        expect(page.get_by_role("link", name=job["id"], exact=True), search).to_be_visible()
        expect(page.locator("tbody tr"), search).to_have_count(1)
    opened(page, f"jobs?type={job['type']}&to=2020-01-01T00:00:00")
    expect(page.get_by_text("No matching jobs.")).to_be_visible()

    opened(page, f"jobs/{job['id']}")
    entries = page.locator(".timeline li")
    expect(entries).to_have_count(2)
    expect(entries.first).to_contain_text("HTTP 500")
    entries.first.get_by_text("Response").click()
    expect(entries.first.locator("pre")).to_contain_text("the ledger is closed")
    expect(page.locator("pre.code").last).to_contain_text('"number": 7')
    expect(page.get_by_text(receiver.url)).to_be_visible()
    page.get_by_role("link", name=event).click()
    expect(page.get_by_role("link", name=job["id"])).to_be_visible()

    receiver.status = 200
    opened(page, f"jobs/{job['id']}")
    press(page, "Retry…")
    answer(page, "Retry", receiver.url)
    expect(entries).to_have_count(3)
    site.wait_for(subscription, ["COMPLETED"])


def test_jobs_are_chosen_and_cancelled_together(site: Site, page: Page) -> None:
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    site.ask("POST", f"/api/v1/subscriptions/{subscription['id']}/pause")
    site.publish(subscription, 1, 2, 3)
    opened(page, f"jobs?subscriptionId={subscription['id']}")
    expect(page.locator("tbody tr")).to_have_count(3)
    for box in page.get_by_label("Select this job").all()[:2]:
        box.check()
    press(page, "Cancel selected…")
    answer(page, "Cancel", "2 jobs are cancelled")
    assert site.statuses(subscription) == ["PENDING"] * 3
    press(page, "Cancel selected…")
    answer(page, "Cancel 2")
    site.wait_for(subscription, ["PENDING", "CANCELLED", "CANCELLED"])
    assert receiver.bodies == []


def test_a_replay_is_counted_before_it_is_done(site: Site, page: Page) -> None:
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    site.publish(subscription, 1, 2, 3)
    site.wait_for(subscription, ["COMPLETED"] * 3)
    opened(page, f"jobs?subscriptionId={subscription['id']}&status=COMPLETED")
    expect(page.locator("tbody tr")).to_have_count(3)
    press(page, "Replay matching…")
    answer(page, "Cancel", "3 finished jobs in 1 group")
    assert site.numbers(receiver) == [1, 2, 3]
    press(page, "Replay matching…")
    answer(page, "Replay 3")
    site.wait(lambda: site.numbers(receiver) == [1, 2, 3, 1, 2, 3])


def test_a_replay_that_its_process_left_is_shown_and_continued(site: Site, page: Page) -> None:
    receiver = site.receiver()
    subscription = site.subscribe(receiver)
    site.publish(subscription, 1, 2, 3)
    site.wait_for(subscription, ["COMPLETED"] * 3)
    replay_id = site.left_replay(subscription)
    opened(page, "jobs")
    card = page.get_by_role("region", name="Replays")
    expect(card.get_by_role("row").filter(has_text=replay_id)).to_contain_text("counting…")
    card.get_by_role("button", name="Continue").click()
    site.wait(lambda: site.numbers(receiver) == [1, 2, 3, 1, 2, 3])
    expect(card.get_by_role("row").filter(has_text=replay_id)).to_contain_text("complete")


def test_a_subscription_is_made_tested_paused_and_given_a_new_secret(
    site: Site, page: Page, complaints: list[str]
) -> None:
    receiver = site.receiver()
    opened(page, "subscriptions")
    press(page, "New subscription…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("made-here")
    dialog.get_by_label("Events, such as").fill("made:**")
    dialog.get_by_label("Target URL").fill("http://user:secret@nowhere.example/")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a URL to deliver to")
    complaints.clear()
    dialog.get_by_label("Target URL").fill(receiver.url)
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.locator("pre")).to_have_text(re.compile("^whsec_"))
    dialog.get_by_role("button", name="Close").click()

    block = page.locator(".subscription", has_text="made-here")
    press(page, "Test", within=block)
    expect(dialog).to_contain_text("made-here accepted the test event")
    expect(dialog).to_contain_text("HTTP 200")
    dialog.get_by_role("button", name="Close").click()
    assert b"penstock:test" in receiver.bodies.pop()

    (subscription,) = [
        each for each in site.get("/api/v1/subscriptions")["subscriptions"] if each["name"] == "made-here"
    ]
    press(page, "Pause…", within=block)
    answer(page, "Pause", receiver.url)
    expect(block).to_contain_text("paused")
    site.publish(subscription, 1)
    site.wait_for(subscription, ["PENDING"])
    assert receiver.bodies == []
    press(page, "Resume", within=block)
    site.wait_for(subscription, ["COMPLETED"])
    assert site.numbers(receiver) == [1]

    press(page, "Rotate secret…", within=block)
    dialog.get_by_role("button", name="Rotate", exact=True).click()
    expect(dialog.locator("pre")).to_have_text(re.compile("^whsec_"))
    dialog.get_by_role("button", name="Close").click()
    expect(block).to_contain_text("2 secrets sign")
    press(page, "Finish rotation…", within=block)
    answer(page, "Finish")
    expect(block).not_to_contain_text("2 secrets sign")

    block.get_by_role("link", name="made-here").click()
    press(page, "Delete…")
    answer(page, "Delete made-here", receiver.url)
    expect(page).to_have_url(re.compile(r"#/subscriptions$"))
    expect(block).to_have_count(0)

    opened(page, "changes")
    expect(page.get_by_role("row").filter(has_text="paused made-here").first).to_be_visible()


def test_older_changes_are_shown_when_they_are_asked_for(site: Site, page: Page) -> None:
    site.ask("PUT", "/api/v1/pools/first-of-all", {"concurrency": 1})
    for concurrency in range(1, 102):
        site.ask("PUT", "/api/v1/pools/changed-often", {"concurrency": concurrency})
    opened(page, "changes")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.filter(has_text="first-of-all")).to_have_count(0)

    press(page, "Show older")
    expect(rows.filter(has_text="first-of-all")).to_have_count(1)
    expect(rows.filter(has_text="changed-often")).to_have_count(101)


def test_a_warning_is_shown_until_it_is_acknowledged(site: Site, page: Page) -> None:
    queue = site.sqs.get_queue_url(QueueName="dispatch.fifo")["QueueUrl"]
    site.sqs.send_message(QueueUrl=queue, MessageBody="nonsense", MessageGroupId="g", MessageDeduplicationId="1")
    opened(page, "overview")
    expect(page.get_by_role("listitem").filter(has_text="Warnings")).to_contain_text(re.compile(r"\d+ open"))
    opened(page, "warnings")
    row = page.get_by_role("row", name=re.compile("a message of 8 bytes was removed"))
    expect(row).to_contain_text("MALFORMED_MESSAGE")
    press(page, "Acknowledge", within=row)
    expect(row).to_have_count(0)
    listed = site.get("/api/router/warnings?acknowledged=true")["warnings"]
    assert any("a message of 8 bytes was removed" in warning["message"] for warning in listed)


def test_without_a_pipeline_the_page_says_so(page: Page) -> None:
    opened(page, "pipeline")
    expect(page.get_by_text("No pipeline is running here.")).to_be_visible()
    expect(page.get_by_text("penstock pipeline run")).to_be_visible()


def test_sparks_queries_are_shown_with_their_pace_and_their_last_error(
    site: Site, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well, ill = QueryProgress("fan-out"), QueryProgress("dispatch")
    for progress in (well, ill):
        progress.started()
        progress.advanced(BatchProgress(7, 1200, 340, 3529.0))
    ill.failed("the queue is gone", 4.0)
    pipeline = site.receiver()
    pipeline.answer = msgspec.json.encode({"master": "local[2]", "queries": [well.view(), ill.view()]})
    address = pipeline.url.removesuffix("/hook")
    part = ServedPart(tmp_path, "api", ["api", "--data", str(tmp_path), "--pipeline", address])
    part.start()
    page = browser.new_page(base_url=part.url)
    try:
        opened(page, "pipeline")
        expect(page.get_by_role("row").filter(has_text="fan-out")).to_contain_text("RUNNING")
        expect(page.get_by_role("row").filter(has_text="fan-out")).to_contain_text("3,529")
        broken = page.get_by_role("row").filter(has_text="dispatch")
        expect(broken).to_contain_text("WAITING")
        expect(broken).to_contain_text("the queue is gone (restarts in 4.0 s)")
        opened(page, "overview")
        expect(page.get_by_role("listitem").filter(has_text="Pipeline")).to_contain_text("failing")
        opened(page, "pipeline")
        chart = page.get_by_role("img", name=re.compile("^Rows per second by query. Now: fan-out 3,529"))
        expect(chart.locator("path.line")).to_have_count(2)
        well.measured(12)
        pipeline.answer = msgspec.json.encode({"master": "local[2]", "queries": [well.view()]})
        opened(page, "overview")
        expect(page.get_by_role("listitem").filter(has_text="Pipeline")).to_contain_text("fan-out: 12 rows waiting")
    finally:
        page.close()
        assert part.stop() == 0


def test_text_from_strangers_is_never_html(site: Site, page: Page) -> None:
    receiver, subscription = failing(site, name=HOSTILE)
    receiver.answer = HOSTILE.encode()
    (event,) = site.publish(subscription, 1, key=HOSTILE)
    site.wait_for(subscription, ["ERROR"])
    (job,) = site.jobs(subscription)
    places = {
        "overview": None,
        "subscriptions": HOSTILE,
        f"jobs?subscriptionId={subscription['id']}": HOSTILE,
        f"jobs/{job['id']}": HOSTILE,
        f"events/{event}": HOSTILE,
        "groups": HOSTILE,
        f"groups?key={subscription['id']}:{HOSTILE}": HOSTILE,
        f"jobs?q={HOSTILE}": None,
    }
    for place, text in places.items():
        opened(page, place.replace("<", "%3C").replace('"', "%22").replace(" ", "%20").replace("#", "%23"))
        if text is not None:
            expect(page.locator("main").get_by_text(text).first, place).to_be_attached()
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_search_keeps_its_subscription_before_the_names_have_come(site: Site, page: Page) -> None:
    subscription = site.subscribe(site.receiver())
    page.route(re.compile("/api/v1/subscriptions"), lambda route: None)
    page.goto(f"/#/jobs?subscriptionId={subscription['id']}")
    page.get_by_label("Field of the payload").fill("number=7")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile("payload=number"))
    expect(page).to_have_url(re.compile(f"subscriptionId={subscription['id']}"))


def test_the_router_is_as_the_verdict_says_and_not_as_its_subscribers_are(site: Site, page: Page) -> None:
    receiver, subscription = failing(site, mode="NEXT_ON_ERROR")
    site.publish(subscription, *range(12))
    site.wait(lambda: breaker_of(site, receiver) in ("OPEN", "HALF_OPEN"))
    opened(page, "overview")
    router = page.locator("#parts li", has_text="Router")
    expect(router).to_contain_text(re.compile("HEALTHY|WARNING|DEGRADED"))
    expect(router).not_to_contain_text("breaker")
