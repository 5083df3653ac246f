"""The catalogue of event types: over HTTP on both databases, and by the commands."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.domain.event import Validation
from penstock.events.catalogue import EventSchemas
from tests.rigs.dispatch import DispatchRig, cloud_event, dispatch_rig
from tests.rigs.job_database import Connect

TYPES = "/api/v1/event-types"
PLACED = f"{TYPES}/orders:placed"
SCHEMA = {
    "$id": "https://shop.example/placed/1",
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "number"}},
}
SECOND = {**SCHEMA, "$id": "https://shop.example/placed/2", "required": ["total", "currency"]}

runner = CliRunner()


@pytest.fixture
async def rig(connect: Connect) -> AsyncIterator[DispatchRig]:
    async with dispatch_rig(connect()) as served:
        yield served


async def put(rig: DispatchRig, validation: str, *schemas: dict[str, Any], **fields: Any) -> None:
    versions = [{"version": str(number), "schema": schema} for number, schema in enumerate(schemas, 1)]
    answer = await rig.ask("PUT", PLACED, {"validation": validation, "versions": versions, **fields})
    assert answer.status == 200, answer


async def publish(rig: DispatchRig, data: object, **fields: Any) -> Any:
    return await rig.ask("POST", "/api/v1/events", cloud_event(type="orders:placed", data=data, **fields))


async def test_a_type_is_set_shown_listed_and_deleted(rig: DispatchRig) -> None:
    versions = [{"version": "1", "schema": SCHEMA, "examples": [{"total": 1.5}]}]
    wanted = {"description": "An order was placed.", "validation": "reject", "versions": versions}
    assert (await rig.ask("PUT", PLACED, wanted)).body == {"type": "orders:placed", **wanted}
    await rig.ask("PUT", f"{TYPES}/carts:filled", {})

    assert (await rig.ask("GET", PLACED)).body == {"type": "orders:placed", **wanted}
    listed = (await rig.ask("GET", f"{TYPES}?limit=1")).body
    assert ([each["type"] for each in listed["eventTypes"]], listed["unknownTypes"]) == (["carts:filled"], "off")
    rest = (await rig.ask("GET", f"{TYPES}?limit=1&cursor={listed['cursor']}")).body
    assert ([each["type"] for each in rest["eventTypes"]], rest["cursor"]) == (["orders:placed"], None)

    assert (await rig.ask("DELETE", PLACED)).body["type"] == "orders:placed"
    assert (await rig.ask("GET", PLACED)).status == 404
    assert (await rig.ask("DELETE", PLACED)).status == 404
    changes = (await rig.ask("GET", "/api/v1/changes")).body["changes"]
    assert [each["summary"] for each in changes][::-1] == [
        "set event type orders:placed",
        "set event type carts:filled",
        "deleted event type orders:placed",
    ]


@pytest.mark.parametrize(
    ("type", "body", "reason"),
    [
        ("orders:*", {}, "cannot be the type of an event"),
        ("a", {"versions": [{"version": "1", "schema": {"type": "strin"}}]}, "version '1': the schema is wrong"),
        ("a", {"versions": [{"version": "1", "schema": {}}] * 2}, "version '1' is given twice"),
        ("a", {"versions": [{"version": "1", "schema": SCHEMA, "examples": [{}]}]}, "example 1 of version '1'"),
        ("a", {"versions": [{"version": "1", "schema": {"$ref": "http://127.0.0.1:1/"}}]}, "nothing is read"),
    ],
)
async def test_a_type_that_cannot_be_checked_is_refused(
    rig: DispatchRig, type: str, body: dict[str, Any], reason: str
) -> None:
    answer = await rig.ask("PUT", f"{TYPES}/{type}", body)
    assert answer.status == 400
    assert reason in answer.body["detail"]


async def test_events_that_do_not_meet_the_schema_are_refused_whole_requests_at_a_time(rig: DispatchRig) -> None:
    await put(rig, "reject", SCHEMA)
    good = cloud_event(type="orders:placed", id="good", data={"total": 1})
    bad = cloud_event(type="orders:placed", id="bad", data={"total": "s3cret"})

    answer = await rig.ask("POST", "/api/v1/events", [good, bad])

    assert answer.status == 400
    assert answer.body["detail"].startswith("event 'bad' of type 'orders:placed' is refused: total: the value is not")
    assert "s3cret" not in answer.body["detail"]
    assert (await publish(rig, {"total": 1}, id="good")).body["events"][0]["isNew"] is True


async def test_a_warning_is_in_the_receipt_and_off_looks_at_nothing(rig: DispatchRig) -> None:
    await put(rig, "warn", SCHEMA)
    receipt = (await publish(rig, {})).body["events"][0]
    assert receipt["warnings"] == ['"total" is a required property (version 1)']
    assert "warnings" not in (await publish(rig, {"total": 1}, id="2")).body["events"][0]

    await put(rig, "off", SCHEMA)
    assert "warnings" not in (await publish(rig, {}, id="3")).body["events"][0]


async def test_an_event_names_its_version_by_dataschema_else_the_newest_is_meant(rig: DispatchRig) -> None:
    await put(rig, "reject", SCHEMA, SECOND)
    assert (await publish(rig, {"total": 1})).status == 400
    assert (await publish(rig, {"total": 1}, id="b", dataschema="1")).status == 200
    assert (await publish(rig, {"total": 1}, id="c", dataschema=SCHEMA["$id"])).status == 200
    assert (await publish(rig, {"total": 1}, id="d", dataschema="2")).status == 400
    unknown = await publish(rig, {"total": 1}, id="e", dataschema="3")
    assert "dataschema '3' is not a version of it; there are 1, 2" in unknown.body["detail"]


async def test_data_that_is_not_json_meets_no_schema(rig: DispatchRig) -> None:
    await put(rig, "reject", {})
    refused = await publish(rig, "plain", datacontenttype="text/plain")
    assert "the data is not JSON" in refused.body["detail"]


async def test_data_is_compared_without_publishing(rig: DispatchRig) -> None:
    await put(rig, "off", SCHEMA, SECOND)
    asked = await rig.ask("POST", f"{PLACED}/validate", {"data": {"total": 1}})
    assert asked.body == {"valid": False, "version": "2", "problems": ['"currency" is a required property (version 2)']}
    older = await rig.ask("POST", f"{PLACED}/validate", {"data": {"total": 1}, "version": "1"})
    assert older.body == {"valid": True, "version": "1", "problems": []}
    assert (await rig.ask("GET", "/api/v1/changes")).body["changes"][0]["action"].startswith("PUT")


async def test_a_change_by_another_process_takes_effect_within_a_second(rig: DispatchRig, connect: Connect) -> None:
    async with dispatch_rig(connect()) as second:
        assert (await publish(second, {})).status == 200
        await put(rig, "reject", SCHEMA)
        second.clock.advance(1.0)
        assert (await publish(second, {}, id="b")).status == 400


@pytest.mark.parametrize(
    ("unknown", "status"), [(Validation.OFF, 200), (Validation.WARN, 200), (Validation.REJECT, 400)]
)
async def test_a_setting_says_what_becomes_of_unknown_types(rig: DispatchRig, unknown: Validation, status: int) -> None:
    schemas = EventSchemas(rig.repository, rig.clock, unknown)
    event = rig.new_event(type="carts:filled")
    if unknown is Validation.REJECT:
        with pytest.raises(Exception, match="is not in the catalogue"):
            await schemas.check([event])
    else:
        warned = [["the type 'carts:filled' is not in the catalogue of event types"]]
        assert await schemas.check([event]) == (warned if unknown is Validation.WARN else [[]])


async def test_the_asyncapi_document_has_a_channel_for_each_type_and_references_that_resolve(rig: DispatchRig) -> None:
    address = {"$id": "x:y", "$defs": {"zip": {"type": "string"}}, "properties": {"zip": {"$ref": "#/$defs/zip"}}}
    versions = [{"version": "1", "schema": SCHEMA, "examples": [{"total": 2}]}, {"version": "2", "schema": address}]
    await put(rig, "warn", versions=versions, description="An order was placed.")
    await rig.ask("PUT", f"{TYPES}/orders%20placed", {})

    document = (await rig.ask("GET", "/asyncapi.json")).body

    assert document["asyncapi"] == "3.0.0"
    assert {each["address"] for each in document["channels"].values()} == {"orders:placed", "orders placed"}
    assert len(document["operations"]) == 2
    messages = document["channels"]["orders_placed-2"]["messages"]
    assert set(messages) == {"orders_placed.1", "orders_placed.2"}
    message = document["components"]["messages"]["orders_placed.1"]
    assert message["examples"][0]["payload"] == {"type": "orders:placed", "data": {"total": 2}}
    moved = document["components"]["schemas"]["orders_placed.2"]["properties"]["zip"]["$ref"]
    assert moved == "#/components/schemas/orders_placed.2/$defs/zip"
    for reference in references(document):
        found = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in references(each)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for each in value.values() for found in references(each)]


async def test_the_commands(rig: DispatchRig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_API__ENDPOINT", rig.server.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA))

    async def run(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
        result = await asyncio.to_thread(
            runner.invoke, app, ["event-types", *arguments], prog_name="penstock", input=stdin
        )
        assert result.exit_code == code, (result.output, result.exception)
        return result

    await run("set", "orders:placed", "--description", "Placed.", "--schema", "@order.json", "--validation", "reject")
    await run("set", "orders:placed", "--example", '{"total": 7}')
    await run("set", "orders:placed", "--schema", "@-", "--schema-version", "2", stdin=json.dumps(SECOND))
    assert (await run("list")).stdout.split("\n")[1].split() == ["orders:placed", "1,", "2", "reject", "Placed."]

    shown = json.loads((await run("show", "orders:placed")).stdout)
    assert [each["examples"] for each in shown["versions"]] == [[{"total": 7}], []]
    assert "no schema" not in (await run("validate", "orders:placed", "--data", '{"total": 1}', code=1)).stdout
    assert (
        await run("validate", "orders:placed", "--data", "@-", "--schema-version", "1", stdin='{"total": 1}')
    ).output
    assert "orders_placed" in json.loads((await run("export", "--asyncapi")).stdout)["channels"]

    await run("delete", "orders:placed")
    await run("set", "orders:placed", "--definition", "@-", stdin=json.dumps(shown))
    assert json.loads((await run("show", "orders:placed")).stdout) == shown
    await run("set", "orders:placed", "--definition", "{}", "--description", "x", code=2)
    assert "it is not JSON" in (await run("set", "orders:placed", "--schema", "{", code=2)).output
    assert "there is no event type" in (await run("show", "carts", code=1)).output
