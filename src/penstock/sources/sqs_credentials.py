"""Whose key signs the requests to SQS: from AWS's environment variables, else from the shared credentials file."""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class AwsKey:
    """An access key; what is secret of it is not shown."""

    access_key: str
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def find_key(environment: Mapping[str, str] = os.environ) -> AwsKey | None:
    """The key to sign with; None if there is none, as with a server on this machine that checks nobody."""
    access_key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret:
        return AwsKey(access_key, secret, environment.get("AWS_SESSION_TOKEN") or None)
    return _from_file(environment)


def find_region(told_by_url: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The region to sign for: the queue URL's, else the environment's."""
    return told_by_url or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def _from_file(environment: Mapping[str, str]) -> AwsKey | None:
    path = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    # A secret may hold a percent sign.
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return None
    profile = environment.get("AWS_PROFILE") or "default"
    if not file.has_section(profile):
        return None
    section = file[profile]
    access_key, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    return AwsKey(access_key, secret, section.get("aws_session_token")) if access_key and secret else None
