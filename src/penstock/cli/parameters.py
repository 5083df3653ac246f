"""Options and arguments that several commands share, each declared once."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

E = TypeVar("E", bound=StrEnum)


def one_of(kind: type[E], text: str) -> E:
    """Read one of some names, in upper or lower case."""
    try:
        return next(each for each in kind if each.casefold() == text.casefold())
    except StopIteration:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(kind)}") from None


def _mode(text: str) -> str:
    from penstock.domain.pointer import DispatchMode

    return one_of(DispatchMode, text)


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]

NodeName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--node",
        help="Name in the cluster of the database, all of whose nodes serve; else the setting cluster.node.",
        metavar="NAME",
        show_default=False,
    ),
]

# Lists
Limit: TypeAlias = Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N", help="How many at most.")]
Cursor: TypeAlias = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Where to continue; the previous page prints it.")
]

# The API
ApiEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        show_default=False,
        help="URL of the API; else the setting api.endpoint, http://127.0.0.1:8080 unless set.",
    ),
]
SubscriptionId: TypeAlias = Annotated[
    str | None, typer.Option("--subscription", metavar="ID", help="Only jobs of this subscription.")
]
OfSubscription: TypeAlias = Annotated[
    str | None, typer.Option("--subscription", metavar="NAME|ID", help="Only what belongs to this subscription.")
]
_TENANT = typer.Option("--tenant", metavar="NAME", help="The tenant.")
Tenant: TypeAlias = Annotated[str | None, _TENANT]
GivenTenant: TypeAlias = Annotated[str, _TENANT]
HighPriority: TypeAlias = Annotated[
    bool | None,
    typer.Option("--high-priority/--regular-priority", help="Whether it goes before the others of its key."),
]
Mode: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--mode",
        parser=_mode,
        metavar="MODE",
        help="What an error does to later jobs: BLOCK_ON_ERROR (the default), NEXT_ON_ERROR or IMMEDIATE.",
    ),
]
Pool: TypeAlias = Annotated[str | None, typer.Option("--pool", metavar="CODE", help="The pool that deliveries use.")]
Headers: TypeAlias = Annotated[
    list[str] | None, typer.Option("--header", metavar="K=V", help="A header to send; repeatable.")
]

# Where data is kept
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The data directory; else the setting data.dir, ./penstock-data."),
]
DatabaseUrl: TypeAlias = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="PostgreSQL, instead of files in the data directory.")
]
Memory: TypeAlias = Annotated[bool, typer.Option("--memory", help="Keep everything in memory only.")]

# Addresses
ApiHost: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        show_default=False,
        help="Address to listen on, else http.host; other than loopback needs api.token or api.keys.",
    ),
]
ProbeHost: TypeAlias = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Address of health and metrics; on another than loopback, the API needs api.token.",
    ),
]


def host_option(needed: str) -> Any:
    """Return an option for an address; `needed` is what lets other machines in."""
    return typer.Option("--host", metavar="ADDRESS", help=f"Address to listen on; other than loopback needs {needed}.")


def port_option(what: str, setting: str, usual: int) -> Any:
    """Return an option for a port that is a setting, too."""
    about = f"Port of {what}; 0 takes a free one. Else the setting {setting}, {usual} unless set."
    return typer.Option(min=0, max=65535, metavar="PORT", show_default=False, help=about)


# Dispatch
DispatchQueue: TypeAlias = Annotated[
    str, typer.Option("--queue", metavar="URI", help="The queue to publish to; else the setting scheduler.queue.")
]
ProcessEndpoint: TypeAlias = Annotated[
    str,
    typer.Option("--endpoint", metavar="URL", help="The process endpoint that routers call; else scheduler.endpoint."),
]
PubsubServer: TypeAlias = Annotated[
    str,
    typer.Option(
        "--topics",
        metavar="HOST:PORT",
        help="Pub/Sub server whose topics feed events and take jobs that are given up; else jobs.topics.",
    ),
]

# Spark
Master: TypeAlias = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark's master: local[*], spark://…, yarn, k8s://…; else pipeline.master."
    ),
]
Conf: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
]
Lake: TypeAlias = Annotated[
    str, typer.Option("--lake", metavar="DIR", help="Directory or URL of the lake; else pipeline.lake.")
]
KeepDays: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        show_default=False,
        help="Delete days from the lake that are older than N, today included; 0 keeps all. Else pipeline.keep_days.",
    ),
]
Once: TypeAlias = Annotated[bool, typer.Option("--once", help="Process everything that waits now, then stop.")]


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the KEY=VALUE texts of a repeated option."""
    split = [text.partition("=") for text in texts or ()]
    for key, equals, value in split:
        if not key or not equals:
            raise typer.BadParameter(f"{key + equals + value!r} is not of the form KEY=VALUE", param_hint=option)
    return {key: value for key, _, value in split}


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given, as keywords of a call that has its own defaults for the others."""
    return {name: value for name, value in values.items() if value is not None}
