"""The pictures of the documentation, of the real page: SCREENSHOTS=1 pytest tests/browser/test_screenshots.py."""

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import SIZES, WAIT_MS
from tests.browser.site import Site

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(os.environ.get("SCREENSHOTS") != "1", reason="SCREENSHOTS=1 makes them"),
]

IMAGES = Path(__file__).parents[2] / "docs/images"
LOOKS: tuple[tuple[str, Any, str], ...] = (
    ("laptop", "light", ""),
    ("laptop", "dark", "-dark"),
    ("phone", "light", "-phone"),
)


def test_the_pictures_of_a_night_when_a_subscriber_failed(browser: Browser, site: Site) -> None:
    receivers = {name: site.receiver() for name in ("billing", "warehouse", "mailer")}
    made = {name: site.subscribe(receiver, name=name, retryDelaysS=[]) for name, receiver in receivers.items()}
    contexts = [
        (browser.new_context(base_url=site.url, viewport=size_of(size), color_scheme=scheme), suffix)
        for size, scheme, suffix in LOOKS
    ]
    pages = [(context.new_page(), suffix) for context, suffix in contexts]
    for page, _ in pages:
        page.set_default_timeout(WAIT_MS)
        page.goto("/#/overview")
    for second in range(30):
        receivers["mailer"].status = 503 if second > 20 else 200
        receivers["mailer"].answer = b'{"error":"the mail gateway does not answer","retry":true}'
        for subscription in made.values():
            site.publish(subscription, *range(10 + second % 7 * 3), key=f"order-{second % 25}")
        pages[0][0].wait_for_timeout(400)
    site.wait(lambda: site.get(f"/api/v1/subscriptions/{made['mailer']['id']}/health")["health"]["failed"] > 2)
    IMAGES.mkdir(exist_ok=True)
    for page, suffix in pages:
        for name, place in (("overview", "overview"), ("subscription", f"subscriptions/{made['mailer']['id']}")):
            page.goto(f"/#/{place}")
            expect(page.locator("#health-reasons li").first).to_be_visible()
            expect(page.locator("path.area").first).to_be_visible()
            page.screenshot(path=IMAGES / f"{name}{suffix}.png")
    for context, _ in contexts:
        context.close()


def size_of(size: str) -> Any:
    """The viewport of a device."""
    width, height = SIZES[size]
    return {"width": width, "height": height}
