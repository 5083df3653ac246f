"""The router's API with the keys of `api.keys`: what each role may, and where it may listen."""

from pathlib import Path

import pytest

from penstock.http.auth.keys import digest_of
from penstock.ops.config import load
from penstock.router.settings import router_settings
from tests.rigs.router_api import served_api

ROLES = ("admin", "publisher", "viewer")
POOL = {"concurrency": 3}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Keys that are named like their role."""
    file = tmp_path / "keys.toml"
    tables = [f'[[key]]\nname = "{role}"\nrole = "{role}"\nsha256 = "{digest_of(role)}"\n' for role in ROLES]
    file.write_text("\n".join(tables))
    return file


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", "X-Penstock": "1"}


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/monitoring", None, {"admin", "viewer"}),
        ("GET", "/monitoring/pools", None, {"admin", "viewer"}),
        ("POST", "/monitoring/in-flight-messages/check-batch", {"messageIds": ["1"]}, {"admin", "viewer"}),
        ("PUT", "/monitoring/pools/P", POOL, {"admin"}),
        ("POST", "/config/reload", None, {"admin"}),
        ("DELETE", "/warnings?olderThanS=3600", None, {"admin"}),
        ("POST", "/api/seed/messages?count=1&endpoint=http://127.0.0.1:9", None, {"admin"}),
    ],
)
def test_each_role_may_do_its_part(keys: Path, method: str, path: str, body: object, allowed: set[str]) -> None:
    with served_api(api_keys=keys) as api:
        answers = {role: api.ask(method, path, body, bearer(role)).status for role in ROLES}
        assert {role for role, status in answers.items() if status == 200} == allowed
        assert {status for role, status in answers.items() if role not in allowed} <= {403}
        assert api.ask(method, path, body, bearer("else")).status == 401
        assert api.ask(method, path, body).status == 401


def test_a_token_goes_beside_the_keys_and_the_probes_ask_for_neither(keys: Path) -> None:
    with served_api(api_keys=keys, api_token="a-long-secret") as api:
        assert api.ask("POST", "/config/reload", None, bearer("a-long-secret")).status == 200
        assert api.ask("GET", "/health/live").status == 200


@pytest.mark.parametrize(
    ("environment", "token", "asks"),
    [
        ({}, "", False),
        ({"PENSTOCK_API__TOKEN": "of the API"}, "of the API", True),
        ({"PENSTOCK_API__TOKEN": "of the API", "PENSTOCK_ROUTER__API_TOKEN": "its own"}, "its own", True),
        ({"PENSTOCK_API__KEYS": "keys.toml"}, "", True),
    ],
)
def test_what_protects_the_api_protects_the_router_too(environment: dict[str, str], token: str, asks: bool) -> None:
    config = load(None, environment)
    settings = router_settings(config, sources=("router.json",), host="127.0.0.1", port=0, workers=1)
    assert (settings.api_token, settings.asks_for_keys) == (token, asks)
