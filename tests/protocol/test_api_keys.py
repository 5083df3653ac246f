"""Keys with roles and the log of changes, through the command line and a real API process."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from tests.rigs.dispatch import cloud_event, request
from tests.rigs.penstock_process import ApiProcess

V1 = "/api/v1"
POOL = {"concurrency": 3, "rateLimitPerMinute": None}

runner = CliRunner()


def made_key(path: Path, name: str, role: str) -> str:
    result = runner.invoke(app, ["keys", "create", name, "--role", role, "--file", str(path), "--json"])
    assert result.exit_code == 0, result.output
    return str(json.loads(result.stdout)["key"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    made = {role: made_key(path, f"the-{role}", role) for role in ("admin", "publisher", "viewer")}
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Iterator[str]:
    with ApiProcess(tmp_path_factory.mktemp("api"), settings={"PENSTOCK_API__KEYS": keys["file"]}) as api:
        yield api.url


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", f"{V1}/pools", None, {"admin", "viewer"}),
        ("GET", f"{V1}/changes", None, {"admin", "viewer"}),
        ("PUT", f"{V1}/pools/SLOW", POOL, {"admin"}),
        ("POST", f"{V1}/events", cloud_event(1), {"admin", "publisher"}),
        ("GET", f"{V1}/jobs", None, {"admin", "viewer"}),
    ],
)
def test_each_role_may_do_its_part(
    server: str, keys: dict[str, str], method: str, path: str, body: object, allowed: set[str]
) -> None:
    answers = {
        role: request(server, method, path, body, bearer(keys[role])).status
        for role in ("admin", "publisher", "viewer")
    }
    assert {role for role, status in answers.items() if status == 200} == allowed
    assert {status for role, status in answers.items() if role not in allowed} <= {403}
    assert request(server, method, path, body, bearer("else")).status == 401


def test_everyone_is_told_the_role_of_its_own_key(server: str, keys: dict[str, str]) -> None:
    for role in ("admin", "publisher", "viewer"):
        assert request(server, "GET", f"{V1}/caller", None, bearer(keys[role])).body == {
            "name": f"the-{role}",
            "role": role,
        }


def test_changes_are_kept_with_who_made_them(server: str, keys: dict[str, str]) -> None:
    body = {"name": "audited", "pattern": "a:**", "target": "http://127.0.0.1:9/?", "headers": {"x-api-key": "hunter2"}}
    answer = request(server, "POST", f"{V1}/subscriptions", body, bearer(keys["admin"]))
    assert answer.status == 200, answer.body
    made, secret = answer.body["subscription"], answer.body["secret"]
    paused = f"{V1}/subscriptions/{made['id']}/pause"
    assert request(server, "POST", paused, {}, bearer(keys["admin"])).status == 200
    assert request(server, "POST", paused, {}, bearer(keys["viewer"])).status == 403
    page = request(server, "GET", f"{V1}/changes?limit=2", None, bearer(keys["viewer"])).body
    second, first = page["changes"]
    assert (first["who"], first["role"]) == ("the-admin", "admin")
    assert first["action"] == f"POST {V1}/subscriptions"
    assert json.loads(first["detail"])["name"] == "audited"
    assert second["action"] == f"POST {V1}/subscriptions/{{id}}/pause"
    assert second["target"] == {"id": made["id"], "name": "audited"}
    assert (first["summary"], second["summary"]) == ("created audited", "paused audited")
    assert "hunter2" not in json.dumps(page)
    assert secret not in json.dumps(page)


def test_publishing_is_not_a_change(server: str, keys: dict[str, str]) -> None:
    request(server, "POST", f"{V1}/events", cloud_event(2), bearer(keys["publisher"]))
    page = request(server, "GET", f"{V1}/changes", None, bearer(keys["viewer"])).body
    assert not [change for change in page["changes"] if "events" in change["action"]]


def test_the_list_of_changes_goes_on_by_its_cursor(server: str, keys: dict[str, str]) -> None:
    for number in range(3):
        path = f"{V1}/pools/PAGE-{number}"
        assert request(server, "PUT", path, POOL, bearer(keys["admin"])).status == 200
    whole = request(server, "GET", f"{V1}/changes?limit=3", None, bearer(keys["viewer"])).body
    first = request(server, "GET", f"{V1}/changes?limit=1", None, bearer(keys["viewer"])).body
    query = f"limit=2&cursor={first['cursor']}"
    rest = request(server, "GET", f"{V1}/changes?{query}", None, bearer(keys["viewer"])).body
    assert [*first["changes"], *rest["changes"]] == whole["changes"]
    assert [change["target"]["code"] for change in whole["changes"]] == ["PAGE-2", "PAGE-1", "PAGE-0"]
    assert request(server, "GET", f"{V1}/changes?cursor=x", None, bearer(keys["viewer"])).status == 400


def test_a_removed_key_is_refused_at_once(server: str, keys: dict[str, str]) -> None:
    path = Path(keys["file"])
    extra = made_key(path, "for-a-while", "viewer")
    assert request(server, "GET", f"{V1}/pools", None, bearer(extra)).status == 200
    assert runner.invoke(app, ["keys", "delete", "for-a-while", "--file", str(path)]).exit_code == 0
    assert request(server, "GET", f"{V1}/pools", None, bearer(extra)).status == 401


def test_the_file_is_for_its_owner_and_has_no_keys(keys: dict[str, str]) -> None:
    path = Path(keys["file"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert all(keys[role] not in path.read_text() for role in ("admin", "publisher", "viewer"))


def test_names_are_taken_once_and_unknown_ones_are_refused(keys: dict[str, str]) -> None:
    taken = runner.invoke(app, ["keys", "create", "the-admin", "--role", "viewer", "--file", keys["file"]])
    assert taken.exit_code != 0
    assert "use another name" in taken.output
    unknown = runner.invoke(app, ["keys", "delete", "nobody", "--file", keys["file"]])
    assert unknown.exit_code != 0
    listed = runner.invoke(app, ["keys", "list", "--file", keys["file"], "--json"])
    assert {"name": "the-viewer", "role": "viewer"} in json.loads(listed.stdout)["keys"]


def test_the_command_shows_changes(server: str, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert request(server, "PUT", f"{V1}/pools/SHOWN", POOL, bearer(keys["admin"])).status == 200
    monkeypatch.setenv("PENSTOCK_API__TOKEN", keys["viewer"])
    result = runner.invoke(app, ["changes", "--endpoint", server, "--limit", "1"])
    assert result.exit_code == 0, result.output
    assert "the-admin" in result.stdout
