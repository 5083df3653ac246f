"""The customers' portal in a browser: one's own endpoints and deliveries, and nothing of the rest."""

import http.server
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from penstock.client import Event, Penstock
from tests.rigs.penstock_process import ApiProcess

pytestmark = [pytest.mark.xdist_group("browser")]

TOKEN = "the-admins-token"
PAGES_OF_STAFF = ("overview", "queues", "pools", "groups", "event-types", "pipeline", "warnings", "changes")
FOREIGN = re.compile("theirs|their-pool|other\\.example|their-secret")


class Shop:
    """An API with two tenants, and a page of a shop that frames the portal."""

    def __init__(self, api: ApiProcess, outer: str) -> None:
        self.url = api.url
        self.outer = outer
        self.client = Penstock(api.url, TOKEN)
        self.own = self.client.subscribe("billing", "billing:**", "https://acme.example/hook", tenant="acme")
        self.client.subscribe("mail", "mail:**", "https://acme.example/mail", tenant="acme", pool="their-pool")
        self.theirs = self.client.subscribe("theirs", "theirs:**", "https://other.example/hook", tenant="other")
        event = {"key": "order-1", "data": {"total": 42}}
        self.client.publish(Event(type="billing:due", tenant="acme", **event))  # type: ignore[arg-type]
        self.client.publish(Event(type="theirs:due", tenant="other", key="their-secret", data={}))

    def link(self, **fields: Any) -> str:
        """The address of a new link."""
        return self.url + self.client.create_portal_link("acme", **fields).path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    directory = tmp_path_factory.mktemp("portal")
    (directory / "frame.html").write_text("<!doctype html><title>shop</title><iframe width=900 height=700></iframe>")
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    outer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: handler(*given, directory=str(directory)))
    threading.Thread(target=outer.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{outer.server_port}"
    settings = {"PENSTOCK_API__TOKEN": TOKEN, "PENSTOCK_API__PORTAL_FRAMES": origin, "PENSTOCK_API__ROUTER": ""}
    with ApiProcess(directory, settings=settings) as api:
        made = Shop(api, origin)
        yield made
        made.client.close()
    outer.shutdown()
    outer.server_close()


@pytest.fixture
def visitor(browser: Browser, shop: Shop) -> Iterator[Page]:
    """A customer's page; whatever the API refuses it fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status in (401, 403, 404, 500) else None)
    yield page
    context.close()
    assert refused == []


def test_a_customer_sees_their_own_endpoints_and_deliveries_and_nothing_else(shop: Shop, visitor: Page) -> None:
    asked: list[Request] = []
    visitor.on("request", lambda request: asked.append(request))
    visitor.goto(shop.link())
    expect(visitor.get_by_role("link", name="billing")).to_be_visible()
    expect(visitor.get_by_role("link", name="mail")).to_be_visible()
    assert "pt_" not in visitor.url, "the token stays out of the address"
    menu = visitor.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(menu).to_have_text(["Jobs", "Subscriptions"][::-1])
    expect(visitor.get_by_role("button", name="New subscription…")).to_be_hidden()
    for text in (FOREIGN, re.compile("pool")):
        expect(visitor.locator("body")).not_to_contain_text(text)

    visitor.get_by_role("link", name="billing").click()
    expect(visitor.get_by_role("heading", level=1, name="billing")).to_be_visible()
    for name, shown in (("Retry all…", True), ("Rotate secret…", True), ("Change URL…", True), ("Test", True)):
        expect(visitor.get_by_role("button", name=name)).to_be_visible(visible=shown)
    for name in ("Delete…", "Replay…", "Edit…"):
        expect(visitor.get_by_role("button", name=name)).to_be_hidden()

    visitor.get_by_role("link", name="Jobs", exact=True).click()
    row = visitor.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(visitor.locator("body")).not_to_contain_text(FOREIGN)
    row.get_by_role("link").first.click()
    expect(visitor.locator("pre")).to_contain_text('"total": 42')
    expect(visitor.get_by_role("button", name="Skip…")).to_be_hidden()

    for place in PAGES_OF_STAFF:
        visitor.goto(f"{shop.url}/portal#/{place}")
        expect(visitor.get_by_role("heading", level=1)).to_have_text("Page not found")
    assert all("pt_" not in each.url for each in asked), "the token is sent in a header only"


def test_a_link_for_one_subscription_shows_only_that(shop: Shop, visitor: Page) -> None:
    visitor.goto(shop.link(subscription_id=shop.own.subscription.id))
    expect(visitor.get_by_role("link", name="billing")).to_be_visible()
    expect(visitor.locator("body")).not_to_contain_text("mail")


def test_a_customer_pauses_changes_the_url_and_rotates_the_secret(shop: Shop, visitor: Page) -> None:
    subscription = shop.own.subscription.id
    visitor.goto(shop.link())
    visitor.goto(f"{shop.url}/portal#/subscriptions/{subscription}")
    visitor.get_by_role("button", name="Pause…").click()
    visitor.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(visitor.locator("#state")).to_have_text("PAUSED")
    visitor.get_by_role("button", name="Change URL…").click()
    visitor.get_by_role("dialog").get_by_label("URL").fill("https://acme.example/new")
    visitor.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(visitor.locator(".page-head")).to_contain_text("https://acme.example/new")
    visitor.get_by_role("button", name="Rotate secret…").click()
    visitor.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    expect(visitor.get_by_role("dialog")).to_contain_text("whsec_")
    assert shop.client.subscription(subscription).secrets == 2


def test_a_link_that_was_revoked_says_so_and_asks_for_no_token(shop: Shop, browser: Browser) -> None:
    link = shop.link()
    page = browser.new_page()
    page.goto(link)
    expect(page.get_by_role("link", name="billing")).to_be_visible()
    shop.client.revoke_portal_links("acme")
    expect(page.get_by_role("heading", level=1)).to_have_text("This link is not valid")
    expect(page.get_by_role("textbox")).to_have_count(0)
    page.close()


def test_it_works_in_a_frame_of_the_page_that_is_named_and_in_no_other(shop: Shop, browser: Browser) -> None:
    link = shop.link()
    for outer, shown in ((shop.outer, True), (shop.outer.replace("127.0.0.1", "localhost"), False)):
        page = browser.new_page()
        page.goto(f"{outer}/frame.html")
        page.locator("iframe").evaluate("(frame, url) => { frame.src = url; }", link)
        frame = page.frame_locator("iframe")
        if shown:
            expect(frame.get_by_role("link", name="billing")).to_be_visible()
        else:
            page.wait_for_function("() => performance.getEntriesByType('resource').length > 0")
            expect(frame.get_by_role("link", name="billing")).to_have_count(0)
        page.close()
