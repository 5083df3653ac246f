"""The SQS endpoint that `penstock queue` talks to, and its credentials."""

import os
import re
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from penstock.domain.errors import InvalidArgument, Unavailable

if TYPE_CHECKING:
    from penstock.sqs.auth.signer import Signer
    from penstock.sqs.client import BlockingSqsClient

DEFAULT_ENDPOINT = "http://127.0.0.1:9324"
DEFAULT_REGION = "us-east-1"
ENDPOINT_VARIABLES = ("SQS_ENDPOINT_OVERRIDE", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL")

_AWS_HOST = re.compile(r"https?://(?:sqs\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com")

SqsEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        show_default=False,
        help=f"SQS endpoint; else ${', $'.join(ENDPOINT_VARIABLES)}, else {DEFAULT_ENDPOINT}.",
    ),
]
QueueName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The queue's name, or its URL.")]


@dataclass(frozen=True)
class FamilyOptions:
    """What was given between `queue` and the command's name."""

    endpoint: str | None


def connect(ctx: typer.Context, endpoint: str | None) -> "BlockingSqsClient":
    """Return a client for the endpoint of this run."""
    from penstock.edge.clock import SystemClock
    from penstock.sqs.client import BlockingSqsClient, SqsEndpoint

    family = ctx.find_object(FamilyOptions)
    url = endpoint_url(endpoint or (family.endpoint if family is not None else None), os.environ)
    try:
        parsed = SqsEndpoint.parse(url)
    except InvalidArgument as error:
        raise typer.BadParameter(error.message, param_hint="--endpoint") from error
    return BlockingSqsClient(parsed, SystemClock(), find_signer(url, os.environ))


def name_of(name_or_url: str) -> str:
    """Return the queue's name, from its name or its URL."""
    return name_or_url.rpartition("/")[2]


def count_of(messages: int) -> str:
    """Return how many messages, in words."""
    return f"{messages} {'message' if messages == 1 else 'messages'}"


def endpoint_url(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the endpoint given, else the first that a variable names, else a server on this machine."""
    named = (environment.get(variable) for variable in ENDPOINT_VARIABLES)
    return given or next((url for url in named if url), DEFAULT_ENDPOINT)


def find_signer(url: str, environment: Mapping[str, str]) -> "Signer | None":
    """Return a signer with the key of Penstock's parts, of AWS's variables or file; None without a key."""
    from penstock.queues.sqs.request import PARTS_KEY
    from penstock.sqs.auth.signer import Signer

    name, _, parts_secret = environment.get(PARTS_KEY, "").partition(":")
    if name and parts_secret:
        return Signer(name, parts_secret, region_of(url, environment))
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    found: Mapping[str, str] = {name: environment.get(name.upper(), "") for name in names}
    if not (found[names[0]] and found[names[1]]):
        found = _profile(environment)
    access_key, secret, token = (found.get(name, "").strip() for name in names)
    if not access_key or not secret:
        return None
    return Signer(access_key, secret, region_of(url, environment), token or None)


def region_of(url: str, environment: Mapping[str, str]) -> str:
    """Return the region in the name of an AWS endpoint, else the one of the environment."""
    if aws := _AWS_HOST.match(url):
        return aws[1] or aws[2]
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def _profile(environment: Mapping[str, str]) -> Mapping[str, str]:
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(file) if file else Path(environment.get("HOME", "~")).expanduser() / ".aws" / "credentials"
    # AWS writes its default profile in lower case; ConfigParser's own default section would leak into others.
    profiles = ConfigParser(interpolation=None, default_section="")
    try:
        profiles.read(path, encoding="utf-8")
    except (ConfigParserError, UnicodeDecodeError, OSError) as error:
        # The parser's own message quotes lines, which may hold a secret.
        raise Unavailable(f"cannot read {path}: {type(error).__name__}; correct it, or set AWS_ACCESS_KEY_ID") from None
    name = environment.get("AWS_PROFILE") or "default"
    return profiles[name] if profiles.has_section(name) else {}
