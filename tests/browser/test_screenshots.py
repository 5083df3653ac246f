"""The pictures of the documentation, made from the real page: SCREENSHOTS=1 pytest tests/browser."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.site import Site

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(os.environ.get("SCREENSHOTS") != "1", reason="SCREENSHOTS=1 makes them"),
]

IMAGES = Path(__file__).parents[2] / "docs/images"


def test_the_picture_for_the_readme(site: Site, page: Page) -> None:
    receivers = {name: site.receiver() for name in ("billing", "warehouse", "mailer")}
    made = [site.subscribe(receiver, name=name) for name, receiver in receivers.items()]
    page.goto("/#/overview")
    for second in range(40):
        for subscription in made:
            site.publish(subscription, *range(20 + second % 7 * 3), key=f"order-{second}")
        receivers["mailer"].status = 500 if second % 9 == 0 else 200
        page.wait_for_timeout(500)
    IMAGES.mkdir(exist_ok=True)
    page.screenshot(path=IMAGES / "overview.png")
