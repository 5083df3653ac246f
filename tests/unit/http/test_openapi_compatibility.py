"""A program written for the last release works with this one: the API keeps its operations, parameters and fields.

`openapi-0.1.0.json` is the document of the last release. A release replaces it.
"""

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.console.front import WebFront
from penstock.events.api.app import openapi, route_table
from penstock.http.api import RouteTable
from tests.rigs.dispatch import jobs_parts
from tests.rigs.openapi_changes import broken

LAST_RELEASE = json.loads(Path(__file__).with_name("openapi-0.1.0.json").read_text())
DELIBERATE: set[str] = set()
"""What was broken on purpose since then; the changelog says each."""


def document() -> dict[str, Any]:
    parts = jobs_parts()
    front = WebFront.at(router="", queues="", pipeline="")
    return openapi(RouteTable(*route_table(parts).routes, *front.routes(parts)))


def test_nothing_that_programs_of_the_last_release_rely_on_is_gone() -> None:
    assert set(broken(LAST_RELEASE, document())) == DELIBERATE


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (["paths", "/api/v1/events"], "POST /api/v1/events is gone"),
        (["paths", "/api/v1/jobs", "get", "parameters", 0], "GET /api/v1/jobs: the parameter"),
        (["components", "schemas", "JobView", "properties", "target"], "field target is gone"),
        (["components", "schemas", "NewSubscription", "properties", "pool"], "field pool is gone"),
    ],
)
def test_what_is_taken_away_is_found(path: list[Any], said: str) -> None:
    now = document()
    changed = copy.deepcopy(now)
    *parents, last = path
    place: Any = changed
    for name in parents:
        place = place[name]
    del place[last]
    assert any(said in each for each in broken(now, changed)), list(broken(now, changed))


def test_what_is_required_all_at_once_is_found() -> None:
    now = document()
    changed = copy.deepcopy(now)
    changed["components"]["schemas"]["NewSubscription"]["required"].append("tenant")
    assert list(broken(now, changed)) == ["POST /api/v1/subscriptions body: the field tenant is required now"]


def references(value: Any) -> set[str]:
    if isinstance(value, list):
        return {found for each in value for found in references(each)}
    if not isinstance(value, dict):
        return set()
    own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return own.union(*(references(each) for each in value.values()))


def test_every_reference_of_the_document_leads_somewhere() -> None:
    made = document()
    known = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert references(made["paths"]) | references(made["components"]) <= known


@pytest.mark.long
def test_a_generator_makes_types_that_compile(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing")
    (tmp_path / "openapi.json").write_text(json.dumps(document()))
    installed = subprocess.run(
        [npm, "--silent", "--no-audit", "--no-fund", "install", "openapi-typescript@7", "typescript@5"],
        cwd=tmp_path, check=False, timeout=240, capture_output=True, text=True,
    )  # fmt: skip
    if installed.returncode:
        pytest.skip(f"npm can install nothing here: {installed.stderr[-200:]}")
    for command in (["openapi-typescript", "openapi.json", "-o", "api.ts"], ["tsc", "--noEmit", "--strict", "api.ts"]):
        done = subprocess.run(
            [tmp_path / "node_modules/.bin" / command[0], *command[1:]],
            cwd=tmp_path, check=False, timeout=120, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
