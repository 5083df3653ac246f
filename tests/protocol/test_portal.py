"""The customers' portal at the API: a token reaches what belongs to its tenant, and nothing else, on every route."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.console.front import WebFront
from penstock.events.api.app import route_table
from penstock.events.portal import SCOPED
from penstock.http.api import AnyRoute, documented
from tests.rigs.dispatch import Answer, DispatchRig, cloud_event, dispatch_rig, jobs_parts
from tests.rigs.job_database import Connect

V1 = "/api/v1"
ADMIN = {"Authorization": "Bearer the-admins-token"}


def all_routes() -> tuple[AnyRoute, ...]:
    parts = jobs_parts()
    front = WebFront.at(router="", queues="", pipeline="")
    own = route_table(parts)
    return (*documented(own, {}).routes, *front.routes(parts))


ROUTES = {f"{each.method} {each.path}": each for each in all_routes() if not each.open}


class World:
    """Two tenants with a job for each subscription, and a token of the first."""

    def __init__(self, rig: DispatchRig) -> None:
        self.rig = rig
        self.subscriptions: dict[str, str] = {}
        self.jobs: dict[str, str] = {}
        self.events: dict[str, str] = {}
        self.token = ""

    async def prepare(self) -> None:
        for name, tenant in (("billing", "acme"), ("mail", "acme"), ("theirs", "other")):
            made = await self.admin(
                "POST",
                f"{V1}/subscriptions",
                {
                    "name": name,
                    "tenant": tenant,
                    "pattern": f"{name}:**",
                    "target": self.rig.receiver.url,
                    "retryDelaysS": [],
                },
            )
            self.subscriptions[name] = made.body["subscription"]["id"]
            event = cloud_event(
                type=f"{name}:happened", id=name, tenant=tenant, partitionkey="k", data={"secret": name}
            )
            published = await self.admin("POST", f"{V1}/events", event)
            self.events[name] = published.body["events"][0]["id"]
            jobs = await self.admin("GET", f"{V1}/jobs?subscriptionId={self.subscriptions[name]}")
            self.jobs[name] = jobs.body["jobs"][0]["id"]
        self.token = await self.link(tenant="acme")

    async def link(self, **fields: Any) -> str:
        answer = await self.admin("POST", f"{V1}/portal-links", fields)
        assert answer.status == 200, answer
        return str(answer.body["token"])

    async def admin(self, method: str, path: str, body: object = None) -> Answer:
        return await self.rig.ask(method, path, body, ADMIN)

    async def ask(self, method: str, path: str, body: object = None, token: str = "") -> Answer:
        return await self.rig.ask(method, path, body, {"Authorization": f"Bearer {token or self.token}"})

    def filled(self, key: str, name: str) -> tuple[str, str, object]:
        """A call of an operation, about what belongs to a subscription."""
        method, path = key.split(" ")
        owner = "jobs" if "/jobs/" in path else "events" if "/events/" in path else "subscriptions"
        values: Mapping[str, str] = {"id": getattr(self, owner)[name]}
        subscription = self.subscriptions[name]
        path = path.replace("{id}", values["id"]).replace("{code}", name).replace("{name}", name)
        path = path.replace("{topic}", name).replace("{type}", name).replace("{tenant}", "acme")
        query = {
            f"{V1}/jobs": f"?subscriptionId={subscription}",
            f"{V1}/groups/held": f"?subscriptionId={subscription}",
            f"{V1}/groups/lanes": "?key=k",
            f"{V1}/statistics/history": f"?by=subscription&name={subscription}",
        }
        bodies: dict[str, object] = {
            "retry": {"ids": [self.jobs[name]]} if f"{V1}/jobs/retry" in path else None,
            "retry-group": {"groupKey": f"{subscription}:k"},
            "rotate-secret": {},
        }
        body = bodies.get(path.rpartition("/")[2])
        if method == "PATCH":
            body = {"target": "https://elsewhere.example/hook"}
        return method, path + (query.get(path, "") if method == "GET" else ""), body


@pytest.fixture
async def world(connect: Connect) -> AsyncIterator[World]:
    front = WebFront.at(router="", queues="", pipeline="", frames="https://shop.example")
    async with dispatch_rig(connect(), front, api_token="the-admins-token") as rig:
        made = World(rig)
        await made.prepare()
        yield made


def test_what_the_portal_offers_exists() -> None:
    assert set(SCOPED) <= set(ROUTES)


async def test_every_operation_that_the_portal_does_not_offer_is_refused(world: World) -> None:
    refused = {key: (await world.ask(*world.filled(key, "billing"))).status for key in set(ROUTES) - set(SCOPED)}
    assert set(refused.values()) == {403}, refused
    assert len(refused) > 30


async def test_every_operation_that_it_offers_reaches_what_is_ones_own(world: World) -> None:
    for key in sorted(SCOPED):
        answer = await world.ask(*world.filled(key, "billing"))
        # Nothing was delivered in this world: there is nothing in ERROR to retry, and no secret to finish with.
        assert answer.status in ((200, 409) if "retry" in key else (200,)), (key, answer)


@pytest.mark.parametrize("scope", ["tenant", "subscription"])
async def test_no_operation_reaches_what_belongs_to_others(world: World, scope: str) -> None:
    token, name = world.token, "theirs"
    if scope == "subscription":
        token, name = await world.link(tenant="acme", subscriptionId=world.subscriptions["billing"]), "mail"
    lists_own = {"GET /api/v1/caller", "GET /api/v1/subscriptions"}
    for key in sorted(set(SCOPED) - lists_own):
        answer = await world.ask(*world.filled(key, name), token=token)
        assert answer.status == 404, (key, answer)
        assert "secret" not in str(answer.body)
    unchanged = await world.admin("GET", f"{V1}/subscriptions/{world.subscriptions[name]}")
    assert (unchanged.body["paused"], unchanged.body["target"]) == (False, world.rig.receiver.url)


async def test_the_list_of_subscriptions_has_ones_own_only(world: World) -> None:
    listed = (await world.ask("GET", f"{V1}/subscriptions")).body["subscriptions"]
    assert [each["name"] for each in listed] == ["billing", "mail"]
    one = await world.link(tenant="acme", subscriptionId=world.subscriptions["mail"])
    listed = (await world.ask("GET", f"{V1}/subscriptions", token=one)).body["subscriptions"]
    assert [each["name"] for each in listed] == ["mail"]
    assert (await world.ask("GET", f"{V1}/caller")).body == {"name": "portal of acme", "role": "portal"}


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/jobs", "give a subscriptionId"),
        ("/jobs?tenant=acme", "give a subscriptionId"),
        ("/groups/held", "give a subscriptionId"),
        ("/statistics/history", "give by=subscription"),
        ("/statistics/history?by=endpoint&name=x", "give by=subscription"),
        ("/statistics/history?by=subscription", "give by=subscription"),
    ],
)
async def test_a_list_has_to_be_of_one_subscription(world: World, path: str, detail: str) -> None:
    answer = await world.ask("GET", V1 + path)
    assert (answer.status, detail in answer.body["detail"]) == (403, True)


@pytest.mark.parametrize(
    "change",
    [
        {"target": "topic:orders"},
        {"target": "sqs:orders"},
        {"pool": "other"},
        {"target": "https://a.example", "headers": {"a": "b"}},
        {"deadLetterTopic": "topic:x"},
        {"pattern": "**"},
    ],
)
async def test_only_the_target_of_ones_own_endpoint_can_be_changed(world: World, change: dict[str, Any]) -> None:
    path = f"{V1}/subscriptions/{world.subscriptions['billing']}"
    assert (await world.ask("PATCH", path, change)).status == 403


async def test_jobs_of_others_among_ones_own_are_not_retried(world: World) -> None:
    answer = await world.ask("POST", f"{V1}/jobs/retry", {"ids": [world.jobs["billing"], world.jobs["theirs"]]})
    assert answer.status == 404


async def test_what_a_customer_does_is_recorded(world: World) -> None:
    await world.ask("POST", f"{V1}/subscriptions/{world.subscriptions['billing']}/pause")
    newest = (await world.admin("GET", f"{V1}/changes")).body["changes"][0]
    assert (newest["who"], newest["role"], newest["summary"]) == ("portal of acme", "portal", "paused billing")


async def test_a_link_ends_when_it_expires_or_is_revoked(world: World) -> None:
    short = await world.link(tenant="acme", hours=1)
    world.rig.clock.advance(3599)
    assert (await world.ask("GET", f"{V1}/caller", token=short)).status == 200
    world.rig.clock.advance(1)
    assert (await world.ask("GET", f"{V1}/caller", token=short)).status == 401

    others = await world.link(tenant="other")
    assert (await world.admin("DELETE", f"{V1}/portal-links/acme")).body == {"tenant": "acme"}
    assert (await world.ask("GET", f"{V1}/caller")).status == 401
    assert (await world.ask("GET", f"{V1}/caller", token=others)).status == 200
    assert (await world.ask("GET", f"{V1}/caller", token=await world.link(tenant="acme"))).status == 200


async def test_a_token_that_was_changed_is_not_valid(world: World) -> None:
    claims, _, signature = world.token.removeprefix("pt_").partition(".")
    others = (await world.link(tenant="other")).removeprefix("pt_").partition(".")[0]
    for forged in (
        "pt_",
        f"pt_{claims}",
        f"pt_{others}.{signature}",
        f"pt_{claims}A.{signature}",
        f"pt_{claims}.{'A' * 43}",
    ):
        assert (await world.ask("GET", f"{V1}/caller", token=forged)).status == 401, forged


async def test_a_link_is_for_what_exists_and_for_an_api_with_credentials(world: World, connect: Connect) -> None:
    theirs = {"tenant": "acme", "subscriptionId": world.subscriptions["theirs"]}
    assert (await world.admin("POST", f"{V1}/portal-links", theirs)).status == 404
    async with dispatch_rig(connect()) as opened:
        answer = await opened.ask("POST", f"{V1}/portal-links", {"tenant": "acme"})
        assert (answer.status, "set api.token or api.keys first" in answer.body["detail"]) == (409, True)
        # Not an administrator either, though everyone else on this machine is one.
        assert (
            await opened.ask("GET", f"{V1}/changes", None, {"Authorization": f"Bearer {world.token}"})
        ).status == 403


async def test_only_the_portal_may_be_shown_in_a_frame_of_the_pages_that_are_named(world: World) -> None:
    portal = (await world.rig.ask("GET", "/portal")).headers["content-security-policy"]
    assert "frame-ancestors https://shop.example;" in portal
    for path in ("/", "/ui/app.js"):
        page = (await world.rig.ask("GET", path)).headers["content-security-policy"]
        assert "frame-ancestors 'none'" in page


async def test_the_commands_create_and_revoke_links(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_API__ENDPOINT", world.rig.server.url)
    monkeypatch.setenv("PENSTOCK_API__TOKEN", "the-admins-token")

    async def run(*arguments: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, app, ["portal-links", *arguments], prog_name="penstock")
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout.strip()

    base = "https://hooks.shop.example"
    url = await run("create", "--tenant", "acme", "--subscription", "billing", "--base-url", f"{base}/")
    address, _, token = url.partition("#token=")
    assert address == f"{base}/portal"
    listed = (await world.ask("GET", f"{V1}/subscriptions", token=token)).body["subscriptions"]
    assert [each["name"] for each in listed] == ["billing"]
    await run("revoke", "--tenant", "acme")
    assert (await world.ask("GET", f"{V1}/caller", token=quote(token))).status == 401
