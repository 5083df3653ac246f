"""`penstock keys`: who may call the API, and in which role."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.cli.family import examples, family
from penstock.cli.options import load_config
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.http.auth import ApiKey

FileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", show_default=False, help="The file with the keys; else the setting api.keys."
    ),
]
Name: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the key, such as the service that uses it.")
]

_RANDOM_BYTES = 30


class GrantedRole(StrEnum):
    """What a key allows: `http.auth.GRANTED`, which is not imported before it is needed."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    VIEWER = "viewer"


app = family(
    "Manage the keys of the API.",
    "penstock keys create orders-service --role publisher --file keys.toml",
    "penstock keys list --file keys.toml",
)


@app.callback()
def keys() -> None:
    """Manage the keys of the API. A running API sees a change at its next request."""


@app.command(epilog=examples("penstock keys create grafana --role viewer"))
def create(
    ctx: typer.Context,
    name: Name,
    role: Annotated[GrantedRole, typer.Option(help="admin: everything. publisher: publish. viewer: read.")],
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and show it, only now; the file keeps only its hash."""
    from base64 import urlsafe_b64encode

    from penstock.edge.randomness import random_bytes
    from penstock.http.auth import ApiKey, Role, digest_of

    path = _path(ctx, file)
    known = _known(path)
    if any(key.name == name for key in known):
        raise typer.BadParameter(f"{path} has a key {name!r} already; delete it first, or use another name")
    key = f"pk_{urlsafe_b64encode(random_bytes(_RANDOM_BYTES)).decode()}"
    _write(path, [*known, ApiKey(name, Role(role), digest_of(key))])
    if as_json:
        print_json({"name": name, "role": role, "key": key})
        return
    typer.echo(key)
    typer.echo(f"Keep it: it is not shown again. Callers send `Authorization: Bearer KEY`. Kept in {path}.", err=True)


@app.command("list", epilog=examples("penstock keys list --json"))
def list_keys(ctx: typer.Context, file: FileOption = None, as_json: AsJson = False) -> None:
    """List the names of keys, and their roles."""
    from penstock.http.auth import read_keys

    known = read_keys(_path(ctx, file))
    if as_json:
        print_json({"keys": [{"name": key.name, "role": key.role} for key in known]})
        return
    print_table(["name", "role"], [[key.name, key.role] for key in known])


@app.command(epilog=examples("penstock keys delete grafana"))
def delete(ctx: typer.Context, name: Name, file: FileOption = None) -> None:
    """Remove a key; it takes effect immediately."""
    from penstock.http.auth import read_keys

    path = _path(ctx, file)
    known = read_keys(path)
    if all(key.name != name for key in known):
        raise typer.BadParameter(f"{path} has no key {name!r}; `penstock keys list` shows all")
    _write(path, [key for key in known if key.name != name])
    typer.echo(f"the key {name} is deleted", err=True)


def _path(ctx: typer.Context, file: Path | None) -> Path:
    configured = load_config(ctx).api.keys
    if file is None and not configured:
        raise typer.BadParameter("give --file FILE, or set api.keys to the file with the keys")
    return file or Path(configured).expanduser()


def _known(path: Path) -> "tuple[ApiKey, ...]":
    from penstock.http.auth import read_keys

    return read_keys(path) if path.exists() else ()


def _write(path: Path, known: "Sequence[ApiKey]") -> None:
    """Replace the whole file in one step, so that a running API never reads half of it."""
    import os

    from penstock.http.auth import parsed_keys

    lines = ["# Keys of the Penstock API; `penstock keys` changes this file."]
    for key in known:
        lines += ["", "[[key]]", f'name = "{key.name}"', f'role = "{key.role}"', f'sha256 = "{key.sha256}"']
    text = "\n".join(lines) + "\n"
    parsed_keys(text, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.new")
    with open(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)
