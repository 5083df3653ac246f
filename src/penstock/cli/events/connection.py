"""The API that `penstock publish`, `jobs`, `subscriptions`, `pools` and `changes` talk to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from penstock.cli.options import options_of
from penstock.domain.errors import FailedPrecondition, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from penstock.client import Penstock

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
        raise Unavailable(f"{error.message}; start an API with `penstock serve api`, or give --endpoint") from error
    except TokenRefused as error:
        raise FailedPrecondition(f"{error.message}; set api.token, or PENSTOCK_API__TOKEN") from error
