"""A real Chromium, looking at a real `penstock up` with real traffic; one of each for all tests of the page."""

import os
import shutil
from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.site import Site
from tests.services import unavailable

WAIT_MS = 120_000
LOUD = ("error", "warning")
# There is no graphics card: what stands in for it costs a fifth of the processor time.
FEWER_PROCESSES = ("--disable-gpu", "--disable-software-rasterizer", "--in-process-gpu")
SIZES = {"laptop": (1280, 860), "phone": (360, 740)}


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright, whose loop must not run on beside other tests."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        unavailable("Chromium", "it is missing; apt-get install chromium, or set CHROMIUM to its path")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *FEWER_PROCESSES])
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything on one machine, and receivers that do as they are told."""
    with Site(tmp_path_factory.mktemp("site")) as made:
        yield made


@pytest.fixture
def complaints() -> list[str]:
    """What the page says on the console: nothing, or the test fails. One that wants a refusal clears it."""
    return []


@pytest.fixture
def page(browser: Browser, site: Site, complaints: list[str], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page on a laptop, or on what the test asks for."""
    wanted: tuple[str, Literal["dark", "light"]] = getattr(request, "param", None) or ("laptop", "light")
    size, scheme = wanted
    width, height = SIZES[size]
    context = browser.new_context(base_url=site.url, viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(WAIT_MS)
    made = context.new_page()
    made.on("console", lambda message: complaints.append(message.text) if message.type in LOUD else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    context.close()
    assert complaints == []
