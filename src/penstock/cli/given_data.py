"""Data given on the command line: as it is, from a file (@FILE), or from standard input (@-)."""

import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

DataOption: TypeAlias = Annotated[
    str | None, typer.Option("--data", metavar="JSON|@FILE", help="The data; @FILE reads a file, @- standard input.")
]
ContentTypeOption: TypeAlias = Annotated[
    str, typer.Option("--content-type", metavar="TYPE", help="What the data is, if it is not JSON.")
]


def read_data(given: str | None) -> bytes | None:
    """The bytes that were meant."""
    if given is None or not given.startswith("@"):
        return None if given is None else given.encode()
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {given[1:]}: {error.strerror}", param_hint="--data") from error


def data_members(given: str | None, content_type: str, name: str, base64_name: str) -> dict[str, object]:
    """The members of a request that carry the data: as JSON if it is JSON, else in base64."""
    content = read_data(given)
    if content is None:
        return {}
    if content_type.partition(";")[0].strip().lower().endswith(("/json", "+json")):
        try:
            return {name: json.loads(content)}
        except ValueError as error:
            raise typer.BadParameter(
                f"it is not JSON: {error}; give --content-type if it is something else", param_hint="--data"
            ) from error
    return {base64_name: b64encode(content).decode()}
