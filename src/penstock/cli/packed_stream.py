"""A compressed file as a stream: gzip by Python, zstd by the program of that name."""

import gzip
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias

from penstock.core.errors import FailedPrecondition, InvalidArgument

GZIP, ZSTD = ".tar.gz", ".tar.zst"

Stream: TypeAlias = IO[bytes] | gzip.GzipFile


class PackingFailed(Exception):
    """The stream is not what it should be."""


def ending_of(path: Path) -> str:
    """How a file is packed, by its name; an error if there is no way to do that."""
    ending = next((each for each in (GZIP, ZSTD) if path.name.endswith(each)), None)
    if ending is None:
        raise InvalidArgument(f"{path.name!r} is no name for a backup: end it with {GZIP} or {ZSTD}")
    if ending == ZSTD and shutil.which("zstd") is None:
        raise FailedPrecondition(f"{path.name} needs the program zstd: install it, or use a name that ends with {GZIP}")
    return ending


@contextmanager
def packing(path: Path) -> Iterator[Stream]:
    """Write a new file."""
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
    """Read a file."""
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
        _, told = process.communicate()
    if process.returncode:
        raise PackingFailed(told.decode(errors="replace").strip() or f"zstd ended with {process.returncode}")
