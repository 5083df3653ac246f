"""Back up a data directory, which may be in use, into one compressed file, and restore it with every file checked."""

import gzip
import hashlib
import os
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from penstock import __version__
from penstock.domain.errors import AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable

GZIP, ZSTD = ".tar.gz", ".tar.zst"
DATABASES = "*.db"
SECRET = "dispatch.secret"
CONTENTS = "contents.json"

_CHUNK_BYTES = 1 << 20
_OWNER_ONLY = 0o600

Stream: TypeAlias = IO[bytes] | gzip.GzipFile


class PackingFailed(Exception):
    """A compressed stream cannot be read or written."""


_DAMAGE = (tarfile.TarError, EOFError, BadGzipFile, zlib.error, PackingFailed, msgspec.DecodeError)


class KeptFile(msgspec.Struct, frozen=True):
    """A file of the archive, with its size and checksum."""

    name: str
    size_bytes: int
    sha256: str


class ArchiveContents(msgspec.Struct, frozen=True):
    """The contents of an archive."""

    penstock: str
    files: list[KeptFile]


def back_up(directory: Path, target: Path) -> list[KeptFile]:
    """Copy a data directory, which may be in use, into a new file; return its contents."""
    ending = ending_of(target)
    if target.exists():
        raise AlreadyExists(f"{target} exists and is not overwritten: give another name")
    databases = sorted(directory.glob(DATABASES))
    if not databases:
        raise InvalidArgument(f"there are no databases in {directory}: give the directory that --data names")
    # On the disk of the target, so that the last step is a link.
    with _scratch(target.parent) as scratch:
        copies = [_copied(database, scratch / database.name) for database in databases]
        secret = directory / SECRET
        if secret.exists():
            copies.append(Path(shutil.copyfile(secret, scratch / SECRET)))
        files = [_described(copy) for copy in copies]
        draft = scratch / f"archive{ending}"
        _write(draft, ArchiveContents(__version__, files), copies)
        _publish(draft, target)
    return files


def restore(source: Path, directory: Path) -> list[KeptFile]:
    """Create a data directory from an archive, once everything in it is checked; return its contents."""
    ending_of(source)
    if not source.is_file():
        raise InvalidArgument(f"the file {source} does not exist")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise FailedPrecondition(f"{directory} is not empty: restore into a new directory, then start Penstock there")
    with _scratch(directory.parent) as scratch:
        fresh = scratch / "data"
        fresh.mkdir(mode=0o700)
        files = _unpack(source, fresh)
        for file in files:
            if Path(file.name).match(DATABASES):
                _check(fresh / file.name)
        # Renaming over an empty directory is one step of the file system.
        os.rename(fresh, directory)
    return files


@contextmanager
def _scratch(beside: Path) -> Iterator[Path]:
    """Yield a directory for drafts; errors of the file system become one sentence."""
    try:
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".penstock-", dir=beside) as scratch:
            yield Path(scratch)
    except OSError as error:
        raise Unavailable(f"cannot write to {beside}: {error.strerror}") from error


def _copied(database: Path, copy: Path) -> Path:
    """Copy a database at one moment, while it is in use."""
    try:
        with (
            closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as original,
            closing(sqlite3.connect(copy)) as made,
        ):
            # In one step, so that all pages are of the same moment.
            original.backup(made, pages=-1)
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            beside = copy.parent.parent.resolve()
            raise Unavailable(
                f"the disk of {beside} is full: free some space, or give a file on another disk"
            ) from error
        raise Unavailable(f"{database} cannot be copied: {error}") from error
    _check(copy)
    return copy


def _check(database: Path) -> None:
    try:
        with closing(sqlite3.connect(database)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        verdict = str(error)
    if verdict != "ok":
        raise FailedPrecondition(f"the database {database.name} is damaged: {verdict}; use an older backup")


def _described(path: Path) -> KeptFile:
    with path.open("rb") as file:
        return KeptFile(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _write(draft: Path, contents: ArchiveContents, copies: list[Path]) -> None:
    listing = draft.with_name(CONTENTS)
    listing.write_bytes(msgspec.json.format(msgspec.json.encode(contents)))
    with packing(draft) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        # The list first: restoring reads the archive once, from the start.
        for path in (listing, *copies):
            _add(archive, path)
    draft.chmod(_OWNER_ONLY)


def _add(archive: tarfile.TarFile, path: Path) -> None:
    # Built by hand, a member does not name the user and the machine.
    member = tarfile.TarInfo(path.name)
    member.size = path.stat().st_size
    member.mode = _OWNER_ONLY
    with path.open("rb") as file:
        archive.addfile(member, file)


def _publish(draft: Path, target: Path) -> None:
    descriptor = os.open(draft, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        # A link, not a rename: it does not replace a file that was created meanwhile.
        os.link(draft, target)
    except FileExistsError:
        raise AlreadyExists(f"{target} exists and is not overwritten: give another name") from None


def _unpack(source: Path, directory: Path) -> list[KeptFile]:
    try:
        with unpacking(source) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            members = iter(archive)
            contents = msgspec.json.decode(_content(archive, next(members, None)), type=ArchiveContents)
            for file in contents.files:
                _take(archive, next(members, None), file, directory)
    except _DAMAGE as error:
        raise InvalidArgument(f"{source} is not a complete backup of Penstock: {error}") from error
    return contents.files


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo | None) -> bytes:
    content = None if member is None or member.name != CONTENTS else archive.extractfile(member)
    if content is None:
        raise tarfile.TarError(f"it does not start with {CONTENTS}")
    return content.read()


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo | None, file: KeptFile, directory: Path) -> None:
    content = None if member is None or member.name != file.name else archive.extractfile(member)
    # A name in the list must not lead out of the directory.
    if content is None or Path(file.name).name != file.name:
        raise tarfile.TarError(f"{file.name} is missing")
    path = directory / file.name
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY), "wb") as kept:
        shutil.copyfileobj(content, kept, _CHUNK_BYTES)
        kept.flush()
        os.fsync(kept.fileno())
    if _described(path) != file:
        raise tarfile.TarError(f"{file.name} differs from its checksum")


def ending_of(path: Path) -> str:
    """Return how a file is compressed, by its name; raise an error if it cannot be."""
    ending = next((each for each in (GZIP, ZSTD) if path.name.endswith(each)), None)
    if ending is None:
        raise InvalidArgument(f"{path.name!r} is not the name of a backup: end it with {GZIP} or {ZSTD}")
    if ending == ZSTD and shutil.which("zstd") is None:
        raise FailedPrecondition(f"{path.name} needs the program zstd: install it, or use a name that ends with {GZIP}")
    return ending


@contextmanager
def packing(path: Path) -> Iterator[Stream]:
    """Write a new compressed file."""
    with path.open("xb") as file:
        if ending_of(path) == GZIP:
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6) as stream:
                yield stream
            return
        with _zstd("-q", "-c", stdin=subprocess.PIPE, stdout=file) as process:
            assert process.stdin is not None
            yield process.stdin


@contextmanager
def unpacking(path: Path) -> Iterator[Stream]:
    """Read a compressed file."""
    with path.open("rb") as file:
        if ending_of(path) == GZIP:
            with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                yield stream
            return
        with _zstd("-q", "-d", "-c", stdin=file, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout


@contextmanager
def _zstd(*options: str, stdin: int | IO[bytes], stdout: int | IO[bytes]) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(["zstd", *options], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE) as process:
        yield process
        _, output = process.communicate()
    if process.returncode:
        raise PackingFailed(output.decode(errors="replace").strip() or f"zstd ended with {process.returncode}")
