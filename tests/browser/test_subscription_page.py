"""The page of one subscription, on a laptop and on a phone: it shows what is true, and its buttons do what they say."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from typer.testing import CliRunner

from penstock.cli.app import app
from tests.browser.site import Site
from tests.browser.test_pages import answer, failing, opened, press
from tests.rigs.penstock_process import ServedPart
from tests.rigs.tls import certificate_and_key

pytestmark = [pytest.mark.xdist_group("browser")]

ON_PHONE = pytest.mark.parametrize("page", [("phone", "light")], indirect=True)


def test_it_shows_how_a_failing_subscription_stands(site: Site, page: Page) -> None:
    _, subscription = failing(site)
    site.publish(subscription, *range(4), key="order-7")
    site.wait_for(subscription, ["ERROR", "PENDING", "PENDING", "PENDING"])

    opened(page, f"subscriptions/{subscription['id']}")
    expect(page.get_by_role("heading", level=1)).to_have_text(subscription["name"])
    expect(page.locator("#state")).to_have_text("DEGRADED")
    expect(page.locator("#health-reasons")).to_contain_text("1 key waits for a job")
    expect(page.locator("#backlog .value")).to_have_text("3")
    expect(page.locator("#backlog .note")).to_have_text("1 key blocked")
    expect(page.locator("#breaker .value")).to_have_text("CLOSED")
    row = page.get_by_label("Blocked keys").get_by_role("row", name=re.compile("^order-7"))
    expect(row.get_by_role("cell").nth(1)).to_have_text("1 error")
    expect(row.get_by_role("cell").nth(2)).to_have_text("3")
    # Counted from the database: it is there for who has just opened the page.
    expect(page.locator("#success-rate .note")).to_have_text("1 of 1 failed")
    chart = page.get_by_role("img", name=re.compile("^Deliveries per minute by outcome. Now: delivered 0"))
    expect(chart.locator("path.area")).to_have_count(4)


def test_a_failure_has_its_request_and_its_response(site: Site, page: Page) -> None:
    _, subscription = failing(site)
    site.publish(subscription, 42, key="order-7")
    site.wait_for(subscription, ["ERROR"])
    opened(page, f"subscriptions/{subscription['id']}")
    entry = page.locator("#failures li")
    expect(entry).to_contain_text("HTTP 500")
    entry.get_by_text("Response").click()
    expect(entry.locator("pre").last).to_contain_text("the ledger is closed")
    entry.get_by_text("Request").click()
    expect(entry).to_contain_text(f"POST {subscription['target']}")
    expect(entry.locator("pre .json-number", has_text="42")).to_be_visible()
    expect(entry.locator("pre .json-name", has_text="number")).to_be_visible()


def test_everything_that_failed_is_retried(site: Site, page: Page) -> None:
    receiver, subscription = failing(site)
    for key in ("a", "b"):
        site.publish(subscription, 1, 2, key=key)
    site.wait(lambda: site.statuses(subscription).count("ERROR") == 2)
    receiver.status = 200
    opened(page, f"subscriptions/{subscription['id']}")
    press(page, "Retry all…")
    answer(page, "Retry 2", "2 jobs in ERROR", subscription["target"])
    site.wait_for(subscription, ["COMPLETED"] * 4)
    expect(page.get_by_text("No key is blocked.")).to_be_visible()


def test_a_key_is_retried_and_another_skipped(site: Site, page: Page) -> None:
    receiver, subscription = failing(site)
    for key in ("good", "poison"):
        site.publish(subscription, 1, 2, key=key)
    site.wait(lambda: site.statuses(subscription).count("ERROR") == 2)
    receiver.status = 200
    opened(page, f"subscriptions/{subscription['id']}")
    keys = page.get_by_label("Blocked keys")
    press(page, "Retry", within=keys.get_by_role("row", name=re.compile("^good")))
    expect(keys.get_by_role("row", name=re.compile("^good"))).to_have_count(0)
    press(page, "Skip…", within=keys.get_by_role("row", name=re.compile("^poison")))
    answer(page, "Skip 1", "1 failed job of poison", "The 1 job behind continues")
    site.wait(lambda: sorted(site.statuses(subscription)) == ["CANCELLED"] + ["COMPLETED"] * 3)


def test_a_period_is_replayed_to_this_subscription_only(site: Site, page: Page, complaints: list[str]) -> None:
    receiver, other = site.receiver(), site.receiver()
    subscription = site.subscribe(receiver)
    site.subscribe(other, pattern=subscription["pattern"])
    opened(page, f"subscriptions/{subscription['id']}")
    press(page, "Replay…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Count").click()
    expect(dialog.get_by_role("alert")).to_have_text("No job of this period can be replayed.")
    dialog.get_by_role("button", name="Cancel").click()
    complaints.clear()

    site.publish(subscription, 1, 2, 3)
    site.wait(lambda: len(receiver.bodies) == len(other.bodies) == 3)
    site.wait_for(subscription, ["COMPLETED"] * 3)
    press(page, "Replay…")
    dialog.get_by_role("button", name="Count").click()
    answer(page, "Replay 3", subscription["target"], "3 events of 1 key")
    site.wait(lambda: site.numbers(receiver) == [1, 2, 3, 1, 2, 3])
    assert len(other.bodies) == 3


def test_everything_that_the_command_line_changes_is_edited(site: Site, page: Page, complaints: list[str]) -> None:
    subscription = site.subscribe(site.receiver(), headers={"x-shop": "a secret"})
    opened(page, f"subscriptions/{subscription['id']}")
    press(page, "Edit…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Timeout in seconds").fill("7")
    dialog.get_by_label("Delays between attempts").fill("1, 5")
    dialog.get_by_label("Events without a key").select_option("ordered")
    dialog.get_by_label("Before the regular jobs").check()
    dialog.get_by_label("Topic for dead letters").fill("graveyard")
    headers = dialog.get_by_label("Headers, one a line")
    expect(headers).to_have_value("x-shop: ***")
    headers.fill("x-shop: ***\nx-more: 1")
    dialog.get_by_label("Filter, a condition a line").fill("region")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("such as region=eu,uk, not: region")
    dialog.get_by_label("Filter, a condition a line").fill("region=eu,uk")
    answer(page, "Save")
    changed = site.get(f"/api/v1/subscriptions/{subscription['id']}")
    assert (changed["timeoutS"], changed["retryDelaysS"], changed["unkeyed"]) == (7, [1, 5], "ordered")
    assert (changed["highPriority"], changed["deadLetterTopic"]) == (True, "graveyard")
    assert changed["headers"] == {"x-shop": "***", "x-more": "***"}
    assert changed["filter"] == [{"attribute": "region", "values": ["eu", "uk"]}]
    expect(page.get_by_label("Settings")).to_contain_text("dead letters to graveyard")


def test_an_endpoint_gets_a_token_and_a_certificate(site: Site, page: Page, complaints: list[str]) -> None:
    public, private = (text.decode() for text in certificate_and_key("ours"))
    subscription = site.subscribe(site.receiver(), target="https://erp.example/hook")
    opened(page, f"subscriptions/{subscription['id']}")
    press(page, "Edit…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("More", exact=True).click()
    dialog.get_by_label("OAuth2: where tokens are fetched").fill("https://id.example/token")
    dialog.get_by_label("OAuth2 client id").fill("penstock")
    dialog.get_by_label("OAuth2 client secret").fill("hunter2")
    dialog.get_by_label("Client certificate, PEM").fill(public)
    dialog.get_by_label("Its private key, PEM").fill(private)
    answer(page, "Save")
    path = f"/api/v1/subscriptions/{subscription['id']}"
    changed = site.get(path)
    assert (changed["oauth2"]["tokenUrl"], changed["oauth2"]["clientSecret"]) == ("https://id.example/token", "***")
    assert changed["clientCertificate"]["subject"] == "CN=ours"
    settings = page.get_by_label("Settings")
    expect(settings).to_contain_text(
        "OAuth2 token of https://id.example/token · client certificate of CN=ours, until 20"
    )

    press(page, "Edit…")
    expect(dialog.get_by_label("OAuth2 client secret")).to_have_value("***")
    dialog.get_by_label("OAuth2 scope").fill("events")
    answer(page, "Save")
    expect(settings).to_contain_text("client certificate of CN=ours")
    assert site.get(path)["oauth2"]["scope"] == "events"

    press(page, "Edit…")
    for label in ("where tokens are fetched", "client id", "client secret", "scope"):
        dialog.get_by_label(f"OAuth2{':' if label.startswith('where') else ''} {label}").fill("")
    dialog.get_by_label("Show no client certificate any more").check()
    answer(page, "Save")
    expect(settings).not_to_contain_text("OAuth2")
    assert (site.get(path)["oauth2"], site.get(path)["clientCertificate"]) == (None, None)


def test_a_leaked_secret_stops_signing_at_once(site: Site, page: Page) -> None:
    subscription = site.subscribe(site.receiver())
    opened(page, f"subscriptions/{subscription['id']}")
    press(page, "Rotate secret…")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("The current secret has leaked").check()
    dialog.get_by_role("button", name="Rotate", exact=True).click()
    expect(dialog.locator("pre")).to_have_text(re.compile("^whsec_"))
    dialog.get_by_role("button", name="Close").click()
    assert site.get(f"/api/v1/subscriptions/{subscription['id']}")["secrets"] == 1


def test_ids_are_copied(site: Site, browser: Browser) -> None:
    subscription = site.subscribe(site.receiver())
    context = browser.new_context(base_url=site.url, permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"/#/subscriptions/{subscription['id']}")
    page.get_by_role("button", name=f"Copy {subscription['id']}").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == subscription["id"]
    context.close()


def test_the_changes_say_what_was_done_in_words(site: Site, page: Page) -> None:
    subscription = site.subscribe(site.receiver(), name="billing-of-words")
    site.ask("POST", f"/api/v1/subscriptions/{subscription['id']}/pause")
    opened(page, "changes")
    rows = page.locator("main tbody tr")
    expect(rows.first).to_contain_text("paused billing-of-words")
    expect(rows.nth(1)).to_contain_text("created billing-of-words")


def test_all_jobs_of_a_search_by_payload_are_selected_at_once(site: Site, page: Page) -> None:
    receiver, subscription = failing(site, mode="NEXT_ON_ERROR")
    site.publish(subscription, 7, 8, 7)
    site.wait_for(subscription, ["ERROR"] * 3)
    receiver.status = 200
    opened(page, f"jobs?subscriptionId={subscription['id']}")
    page.get_by_label("Field of the payload").fill("number=7")
    press(page, "Search")
    rows = page.locator("main tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("Select all jobs of this list").check()
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    press(page, "Retry selected…")
    answer(page, "Retry 2", "2 jobs")
    site.wait_for(subscription, ["COMPLETED", "ERROR", "COMPLETED"])
    expect(page.get_by_label("Select all jobs of this list")).not_to_be_checked()


@ON_PHONE
def test_on_a_phone_the_buttons_one_needs_are_in_sight(site: Site, page: Page) -> None:
    _, subscription = failing(site, name="a-rather-long-name-of-a-subscription-that-does-not-fit-into-one-line")
    site.publish(subscription, 1, 2, key="a-key-that-is-long-enough-to-be-a-nuisance-on-a-narrow-screen")
    site.wait_for(subscription, ["ERROR", "PENDING"])
    opened(page, f"subscriptions/{subscription['id']}")
    row = page.get_by_label("Blocked keys").get_by_role("row").last
    for name in ("Retry all…", "Pause…", "Test", "Replay…"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
    row.scroll_into_view_if_needed()
    for name in ("Retry", "Skip…"):
        expect(row.get_by_role("button", name=name, exact=True)).to_be_in_viewport(ratio=1)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    heading = page.get_by_role("heading", level=1)
    assert heading.evaluate("(each) => each.scrollWidth <= each.clientWidth"), "a long name wraps"


def test_a_viewer_is_offered_nothing_that_it_may_not_do(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    made = {}
    for role in ("admin", "viewer"):
        result = CliRunner().invoke(app, ["keys", "create", role, "--role", role, "--file", str(keys), "--json"])
        made[role] = json.loads(result.stdout)["key"]
    settings = {"PENSTOCK_API__KEYS": str(keys), "PENSTOCK_LOG__LEVEL": "error", "PENSTOCK_API__ROUTER": ""}
    part = ServedPart(tmp_path, "api", ["api", "--data", str(tmp_path)], settings)
    part.start()
    try:
        for role, shown in (("admin", True), ("viewer", False)):
            context = browser.new_context(base_url=part.url)
            page = context.new_page()
            page.goto("/#/subscriptions")
            page.get_by_label("Token").fill(made[role])
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", name="Subscriptions", level=1)).to_be_visible()
            button = page.get_by_role("button", name="New subscription…")
            expect(button).to_be_visible(visible=shown)
            for place, name in (("pools", "New pool…"), ("jobs", "Replay matching…"), ("warnings", "Acknowledge all…")):
                page.goto(f"/#/{place}")
                expect(page.get_by_role("heading", level=1)).to_be_visible()
                expect(page.get_by_role("button", name=name)).to_be_visible(visible=shown)
            context.close()
    finally:
        assert part.stop() == 0
