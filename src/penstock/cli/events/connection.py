"""The API that `penstock publish`, `jobs`, `subscriptions` and the like talk to, and names for ids."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from penstock.cli.options import options_of
from penstock.domain.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable

if TYPE_CHECKING:
    from penstock.client import Penstock, Subscription

TIMEOUT_S = 660.0
"""Longer than a subscriber may take to answer a test event."""


@contextmanager
def connect(ctx: typer.Context, endpoint: str | None) -> Iterator["Penstock"]:
    """Open a client for the API of this run; its errors say what to do on the command line."""
    from penstock.client import NoAnswer, Penstock, TokenRefused
    from penstock.ops.config import load

    config = load(options_of(ctx).config_file)
    try:
        client = Penstock(endpoint or config.api.endpoint, config.api.token or None, timeout_s=TIMEOUT_S)
    except InvalidArgument as error:
        raise typer.BadParameter(error.message, param_hint="--endpoint") from error
    try:
        with client:
            yield client
    except NoAnswer as error:
        raise Unavailable(f"{error.message}; start everything with `penstock up`, or give --endpoint") from error
    except TokenRefused as error:
        raise FailedPrecondition(f"{error.message}; set api.token, or PENSTOCK_API__TOKEN") from error


def subscription_of(client: "Penstock", which: str) -> "Subscription":
    """Return the subscription with this name or id; NotFound if there is none."""
    known = client.subscriptions()
    named = [each for each in known if each.name == which]
    if len(named) > 1:
        ids = ", ".join(each.id for each in named)
        raise FailedPrecondition(f"several tenants have a subscription {which!r}; give one of the ids {ids}")
    found = named or [each for each in known if each.id == which]
    if not found:
        raise NotFound(f"there is no subscription {which!r}; `penstock subscriptions list` shows all")
    return found[0]
