"""`penstock backup` and `penstock restore` where no server runs; tests/protocol/test_backup.py has the rest."""

import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.ops.backup import GZIP, ZSTD

SECRET = b"nobody knows this"
ROWS = 2000

runner = CliRunner()


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = runner.invoke(app, [str(each) for each in arguments], prog_name="penstock")
    assert result.exit_code == code, (result.output, result.exception)
    return result


def refused(*arguments: str | Path) -> str:
    return run(*arguments, code=1).stderr


def rows(database: Path) -> list[int]:
    with closing(sqlite3.connect(database)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM facts ORDER BY number")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two databases and a secret."""
    directory = tmp_path / "data"
    directory.mkdir()
    for name in ("jobs.db", "sqs.db"):
        with closing(sqlite3.connect(directory / name)) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE facts (number INTEGER, padding TEXT)")
            connection.executemany("INSERT INTO facts VALUES (?, ?)", [(number, "x" * 50) for number in range(ROWS)])
    (directory / "dispatch.secret").write_bytes(SECRET)
    (directory / "sqs.db.lock").write_text("1")
    return directory


@pytest.fixture(params=[GZIP, ZSTD])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == ZSTD and shutil.which("zstd") is None:
        pytest.skip("the program zstd is not installed")
    return tmp_path / f"backup{request.param}"


def test_what_is_restored_is_what_was_backed_up(data: Path, file: Path, tmp_path: Path) -> None:
    kept = json.loads(run("backup", "--data", data, "--to", file, "--json").stdout)
    assert [each["name"] for each in kept] == ["jobs.db", "sqs.db", "dispatch.secret"]

    fresh = tmp_path / "fresh" / "data"
    assert json.loads(run("restore", "--from", file, "--data", fresh, "--json").stdout) == kept

    assert sorted(path.name for path in fresh.iterdir()) == ["dispatch.secret", "jobs.db", "sqs.db"]
    assert (fresh / "dispatch.secret").read_bytes() == SECRET
    assert rows(fresh / "jobs.db") == rows(fresh / "sqs.db") == list(range(ROWS))


def test_only_the_owner_can_read_a_backup_and_what_comes_of_it(data: Path, file: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    run("backup", "--data", data, "--to", file)
    run("restore", "--from", file, "--data", fresh)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (file, *fresh.iterdir())}
    assert modes == {0o600}


def test_drafts_are_gone_afterwards(data: Path, file: Path, tmp_path: Path) -> None:
    run("backup", "--data", data, "--to", file)
    run("restore", "--from", file, "--data", tmp_path / "fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["data", "fresh", file.name])


def test_nothing_is_overwritten(data: Path, file: Path) -> None:
    file.write_text("precious")
    assert "not overwritten" in refused("backup", "--data", data, "--to", file)
    assert file.read_text() == "precious"
    assert "is not empty" in refused("restore", "--from", file, "--data", data)


def test_an_open_transaction_of_somebody_else_is_neither_disturbed_nor_copied(data: Path, file: Path) -> None:
    with closing(sqlite3.connect(data / "sqs.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO facts VALUES (-1, '')")
        run("backup", "--data", data, "--to", file)
        writer.execute("COMMIT")
    run("restore", "--from", file, "--data", data.parent / "fresh")
    assert rows(data.parent / "fresh" / "sqs.db") == list(range(ROWS))
    assert rows(data / "sqs.db") == [-1, *range(ROWS)]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_half_a_backup_is_refused_and_leaves_nothing(data: Path, file: Path, tmp_path: Path, share: float) -> None:
    run("backup", "--data", data, "--to", file)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    assert "not a complete backup" in refused("restore", "--from", file, "--data", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()


def archive(path: Path, *files: tuple[str, bytes, bytes]) -> Path:
    """A backup by someone else: name, content, and the content that the list speaks of."""
    listed = [
        {"name": name, "size_bytes": len(told), "sha256": hashlib.sha256(told).hexdigest()} for name, _, told in files
    ]
    contents = json.dumps({"penstock": "0", "files": listed}).encode()
    with tarfile.open(path, "w:gz") as made:
        for name, content in (("contents.json", contents), *((name, content) for name, content, _ in files)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["../evil.db", "/tmp/evil.db", "a/evil.db"])
def test_no_file_is_put_outside_of_the_directory(tmp_path: Path, name: str) -> None:
    made = archive(tmp_path / "evil.tar.gz", (name, b"x", b"x"))
    assert "not a complete backup" in refused("restore", "--from", made, "--data", tmp_path / "fresh")
    assert not (tmp_path / "evil.db").exists()
    assert not Path("/tmp/evil.db").exists()


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    made = archive(tmp_path / "changed.tar.gz", ("dispatch.secret", b"other", b"right"))
    assert "dispatch.secret differs from its checksum" in refused(
        "restore", "--from", made, "--data", tmp_path / "fresh"
    )


def test_a_damaged_database_is_refused_on_both_ways(data: Path, tmp_path: Path) -> None:
    content = bytearray((data / "sqs.db").read_bytes())
    content[5 * 4096 : 6 * 4096] = os.urandom(4096)
    (data / "sqs.db").write_bytes(content)
    assert "sqs.db is damaged" in refused("backup", "--data", data, "--to", tmp_path / "backup.tar.gz")
    made = archive(tmp_path / "damaged.tar.gz", ("sqs.db", bytes(content), bytes(content)))
    assert "sqs.db is damaged" in refused("restore", "--from", made, "--data", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    assert not (tmp_path / "backup.tar.gz").exists()


def test_what_cannot_be_backed_up_or_restored_is_told(data: Path, tmp_path: Path) -> None:
    assert "end it with .tar.gz or .tar.zst" in refused("backup", "--data", data, "--to", tmp_path / "backup.zip")
    assert "no databases" in refused("backup", "--data", tmp_path, "--to", tmp_path / "backup.tar.gz")
    assert "does not exist" in refused("restore", "--from", tmp_path / "none.tar.gz", "--data", tmp_path / "fresh")
    below_a_file = data / "sqs.db" / "backup.tar.gz"
    assert "cannot write to" in refused("backup", "--data", data, "--to", below_a_file)


def test_without_the_program_zstd_the_other_kind_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "use a name that ends with .tar.gz" in refused("backup", "--data", data, "--to", tmp_path / "backup.tar.zst")


def test_a_disk_too_small_for_the_copy_is_told(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def cramped(database: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(database, **kwargs)
        if not kwargs:
            connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr(sqlite3, "connect", cramped)
    told = refused("backup", "--data", data, "--to", tmp_path / "b.tar.gz")
    assert told == f"error: the disk of {tmp_path} is full: free some space, or give a file on another disk\n"
    assert not (tmp_path / "b.tar.gz").exists()
