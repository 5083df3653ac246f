"""The credentials file: what is accepted, what is said about mistakes, and that secrets stay secret."""

import logging
from pathlib import Path

import pytest

from penstock.domain.errors import InvalidArgument
from penstock.sqs.auth import credentials
from penstock.sqs.auth.credentials import KeyRole, Principal

SECRET = "0123456789abcdef-secret"
GOOD = f"""
[[key]]
access_key = "ops"
secret = "{SECRET}"
role = "admin"

[[key]]
access_key = "orders-service.v2"
secret = "{SECRET}-two"
role = "client"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credentials.toml"
    path.touch(mode=0o600)
    return path


def complaint(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        credentials.load_credentials(file)
    told = caught.value.message
    assert str(file) in told
    assert SECRET not in told
    assert caught.value.__context__ is None
    return told


def key(access_key: str = '"k"', secret: str = f'"{SECRET}"', role: str = '"client"', more: str = "") -> str:
    return f"[[key]]\naccess_key = {access_key}\nsecret = {secret}\nrole = {role}\n{more}\n"


def test_keys_are_found_by_their_name(file: Path) -> None:
    file.write_text(GOOD)
    known = credentials.load_credentials(file)
    found = known.find("ops")
    assert found is not None
    assert (found.principal, found.secret) == (Principal("ops", KeyRole.ADMIN), SECRET)
    other = known.find("orders-service.v2")
    assert other is not None
    assert other.principal.role is KeyRole.CLIENT
    assert known.find("nobody") is None


def test_secrets_are_not_shown(file: Path) -> None:
    file.write_text(GOOD)
    known = credentials.load_credentials(file)
    found = known.find("ops")
    for thing in (known, found, [found], {"k": found}):
        assert SECRET not in f"{thing} {thing!r}"
    assert "ops" in repr(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must contain one or more [[key]] tables"),
        ("key = 3", "must contain one or more [[key]] tables"),
        ("key = []", "must contain one or more [[key]] tables"),
        ("key = [1]", "key 1 "),
        (key() + "[[keys]]\nx = 1", "and nothing else"),
        ("[[key]\n", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        (key(access_key='""'), "access_key must be 1 to 128"),
        (key(access_key='"a/b"'), "access_key must be 1 to 128"),
        (key(access_key='"a\\n"'), "access_key must be 1 to 128"),
        (key(access_key="3"), "access_key must be 1 to 128"),
        (key(secret='"0123456789abcde"'), "secret must be text of 16 characters"),
        (key(secret="[1]"), "secret must be text of 16 characters"),
        (key(secret=f'" {SECRET}"'), "white space"),
        (key(role='"root"'), 'role must be "admin" or "client"'),
        (key(role="[]"), 'role must be "admin" or "client"'),
        (key(more="region = 1"), "unknown setting 'region'; allowed are access_key, secret, role"),
        (key() + key(), "key 2 "),
        (key() + key(), "access_key 'k' appears twice"),
        ('[[key]]\nrole = "admin"', "secret must be"),
    ],
)
def test_mistakes_are_told(file: Path, text: str, said: str) -> None:
    assert said in complaint(file, text)


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    told = complaint(file, key(role='"x"') + key(access_key='""') + key(access_key='"c"'))
    assert "key 1 " in told
    assert "key 2 " in told
    assert "key 3 " not in told


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InvalidArgument, match="cannot be read"):
            credentials.load_credentials(path)


def test_a_file_that_is_not_text(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        credentials.load_credentials(file)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_file_that_everyone_can_read_is_warned_of(
    file: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file.write_text(GOOD)
    file.chmod(mode)
    with caplog.at_level(logging.WARNING):
        credentials.load_credentials(file)
    assert ("chmod 600" in caplog.text) is warned
    assert SECRET not in caplog.text
