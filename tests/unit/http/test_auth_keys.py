"""Keys with roles: what is in the file, who a caller is, and what each role may do."""

import os
from pathlib import Path

import pytest

from penstock.cli.admin.keys import GrantedRole
from penstock.http.auth.guard import RequestGuard
from penstock.http.auth.keys import GRANTED, ApiKey, Caller, KeyFile, Role, caller_of, digest_of, parsed_keys, read_keys
from penstock.http.problems import Refused
from penstock.ops.config.errors import ConfigError

VIEWER = ApiKey("grafana", Role.VIEWER, digest_of("look"))
PUBLISHER = ApiKey("orders", Role.PUBLISHER, digest_of("tell"))


def table(name: str, role: str, key: str) -> str:
    return f'[[key]]\nname = "{name}"\nrole = "{role}"\nsha256 = "{digest_of(key)}"\n'


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "host": "penstock.example"}


def test_a_caller_is_known_by_its_key() -> None:
    assert caller_of(b"tell", (VIEWER, PUBLISHER)) == Caller("orders", Role.PUBLISHER)
    assert caller_of(b"look ", (VIEWER, PUBLISHER)) is None
    assert caller_of(b"", (VIEWER, PUBLISHER)) is None


def test_the_hash_is_no_key() -> None:
    assert caller_of(VIEWER.sha256.encode(), (VIEWER,)) is None


def test_a_file_holds_keys() -> None:
    text = table("a", "admin", "x") + table("b@example.com", "viewer", "y")
    assert parsed_keys(text, "keys.toml") == (
        ApiKey("a", Role.ADMIN, digest_of("x")),
        ApiKey("b@example.com", Role.VIEWER, digest_of("y")),
    )
    assert parsed_keys("", "keys.toml") == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("key = 1", "[[key]] tables"),
        ("[other]\n", "[[key]] tables"),
        ("[[key]", "not valid TOML"),
        (table("a b", "admin", "x"), "name must be"),
        (table("a", "root", "x"), "role must be"),
        (table("a", "admin", "x") + table("a", "viewer", "y"), "twice"),
        ('[[key]]\nname = "a"\nrole = "admin"\nsha256 = "hunter2"\n', "sha256 must be"),
        (table("a", "admin", "x") + 'secret = "hunter2"\n', "unknown setting 'secret'"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_shows_no_secret(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed_keys(text, "keys.toml")
    assert reason in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="penstock keys create"):
        read_keys(tmp_path / "keys.toml")


def test_a_file_is_read_anew_when_it_changes_and_damage_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(table("a", "admin", "x"))
    keys = KeyFile(path)
    path.write_text(table("a", "admin", "x") + table("b", "viewer", "y"))
    assert [key.name for key in keys.current()] == ["a", "b"]
    path.write_text("[[key]")
    assert [key.name for key in keys.current()] == ["a", "b"]
    path.unlink()
    assert [key.name for key in keys.current()] == ["a", "b"]
    path.write_text("")
    os.utime(path, ns=(1, 1))
    assert keys.current() == ()


def test_keys_and_token_work_side_by_side() -> None:
    guard = RequestGuard("master", lambda: (VIEWER, PUBLISHER))
    assert guard.caller(bearer("master")).role is Role.ADMIN
    assert guard.caller(bearer("look")) == Caller("grafana", Role.VIEWER)
    with pytest.raises(Refused) as caught:
        guard.caller(bearer("else"))
    assert caught.value.problem.status == 401


def test_with_a_file_that_has_no_keys_nobody_gets_in() -> None:
    guard = RequestGuard("", lambda: ())
    for headers in (bearer(""), bearer("x"), {"host": "127.0.0.1"}):
        with pytest.raises(Refused):
            guard.caller(headers)


def test_a_role_that_is_not_enough_is_refused_by_name() -> None:
    with pytest.raises(Refused, match=r"'grafana' has the role viewer; this requires admin") as caught:
        RequestGuard().check_role(Caller("grafana", Role.VIEWER), frozenset({Role.ADMIN}))
    assert caught.value.problem.status == 403


def test_the_command_line_knows_all_roles() -> None:
    assert [*GrantedRole] == [*GRANTED]
