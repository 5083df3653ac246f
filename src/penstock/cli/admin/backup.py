"""`penstock backup` and `penstock restore`: the embedded data as one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.family import examples
from penstock.cli.options import load_config
from penstock.cli.output import print_json, print_table
from penstock.cli.parameters import AsJson, DataDir

if TYPE_CHECKING:
    from penstock.ops.backup import KeptFile

BACKUP_EXAMPLES = examples(
    "penstock backup --data /var/lib/penstock --to /backups/penstock-2026-11-16.tar.gz",
    "penstock backup --to penstock.tar.zst",
)
RESTORE_EXAMPLES = examples(
    "penstock restore --from /backups/penstock-2026-11-16.tar.gz --data /var/lib/penstock",
)


def backup(
    ctx: typer.Context,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="A new file; its name ends with .tar.gz or .tar.zst.")
    ],
    data: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Copy the embedded data into one file, while it is in use.

    The file holds the databases and the secret of the process endpoint. Each database is copied at one moment, with
    everything that was confirmed before the backup started. Only its owner can read the file, as it holds secrets.
    """
    from penstock.ops.backup import back_up

    _print(back_up(data or load_config(ctx).data.dir, to), as_json)


def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Option("--from", metavar="FILE", help="A file that `penstock backup` wrote.")],
    data: Annotated[
        Path | None, typer.Option(help="A new or empty directory; else the setting data.dir.", metavar="DIR")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a data directory from a backup.

    Nothing is created before every file of the backup has been checked.
    """
    from penstock.ops.backup import restore as restored

    _print(restored(source, data or load_config(ctx).data.dir), as_json)


def _print(files: "list[KeptFile]", as_json: bool) -> None:
    if as_json:
        print_json([{"name": file.name, "sizeBytes": file.size_bytes, "sha256": file.sha256} for file in files])
        return
    print_table(("file", "bytes"), [(file.name, str(file.size_bytes)) for file in files])
