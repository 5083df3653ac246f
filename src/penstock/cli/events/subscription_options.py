"""The options that say how a subscription delivers, shared by `penstock subscriptions create` and `update`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from penstock.cli.parameters import given, one_of, pairs

if TYPE_CHECKING:
    from penstock.client import ClientCertificate, OAuth2


def _unkeyed(text: str) -> str:
    from penstock.domain.subscription import UnkeyedOrder

    return one_of(UnkeyedOrder, text)


def _signature(text: str) -> str:
    from penstock.domain.signing import SigningMethod

    return one_of(SigningMethod, text)


def _body(text: str) -> str:
    from penstock.domain.subscription import BodyFormat

    return one_of(BodyFormat, text)


TARGET_HELP = "Where to deliver events: a URL, topic:NAME or sqs:NAME."
Target: TypeAlias = Annotated[str, typer.Option(metavar="TARGET", help=TARGET_HELP)]
Filters: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="K=V,…|EXPRESSION",
        help="Only events whose attribute has one of the values, or that meet an expression such as "
        "'data.total >= 100'; repeatable, and all must hold.",
    ),
]
Retry: TypeAlias = Annotated[
    str | None, typer.Option("--retry", metavar="S,S,…", help="Seconds to wait after each failed attempt.")
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option("--timeout", min=0.1, max=600, metavar="S", help="Seconds that the endpoint has to answer."),
]
Unkeyed: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--unkeyed",
        parser=_unkeyed,
        metavar="none|ordered",
        help="Whether events without a key are delivered in order.",
    ),
]
Signature: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--signature",
        parser=_signature,
        metavar="hmac|ed25519",
        help="Sign with a secret that the receiver has too, or with a private key whose public key it verifies with.",
    ),
]
Body: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--body",
        parser=_body,
        metavar="cloudevent|binary|slack",
        help="What is sent: the event as JSON; its data, with the rest in ce- headers; a text for a chat.",
    ),
]
DeadLetters: TypeAlias = Annotated[
    str | None,
    typer.Option("--dead-letter-topic", metavar="TOPIC", help="Topic, or sqs:NAME, that gets a copy of failed events."),
]

OAuth2Url: TypeAlias = Annotated[
    str | None,
    typer.Option("--oauth2-url", metavar="URL", help="Where OAuth2 tokens for the endpoint are fetched."),
]
OAuth2ClientId: TypeAlias = Annotated[
    str | None, typer.Option("--oauth2-client", metavar="ID", help="The client id that gets the tokens.")
]
OAuth2Secret: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--oauth2-secret",
        metavar="SECRET",
        help="The client's secret; - reads it from standard input, where no one else sees it.",
    ),
]
OAuth2Scope: TypeAlias = Annotated[
    str | None,
    typer.Option("--oauth2-scope", metavar="SCOPE", help="What the tokens are asked for, if the issuer needs it."),
]
OAuth2Audience: TypeAlias = Annotated[
    str | None,
    typer.Option("--oauth2-audience", metavar="NAME", help="Whom the tokens are for, if the issuer needs it."),
]
ClientCert: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--client-cert", metavar="FILE", help="PEM file with the client certificate that the endpoint asks for."
    ),
]
ClientKey: TypeAlias = Annotated[
    Path | None,
    typer.Option("--client-key", metavar="FILE", help="PEM file with its private key, if --client-cert has none."),
]

# An attribute and values, as in region=eu; in an expression = never stands alone.
_VALUES = re.compile(r"\w+=(?!=)")


def delivery_options(
    filters: list[str] | None,
    mode: str | None,
    pool: str | None,
    unkeyed: str | None,
    high_priority: bool | None,
    retry: str | None,
    timeout_s: float | None,
    header: list[str] | None,
    dead_letter_topic: str | None,
    body: str | None,
) -> dict[str, Any]:
    return given(
        **_filters(filters),
        mode=mode,
        pool=pool,
        unkeyed=unkeyed,
        high_priority=high_priority,
        retry_delays_s=None if retry is None else _delays(retry),
        timeout_s=timeout_s,
        headers=pairs(header, "--header") if header else None,
        dead_letter_topic=dead_letter_topic,
        body=body,
    )


def _filters(given: list[str] | None) -> dict[str, Any]:
    """Return both kinds of filters, which replace the previous ones together; an empty one removes them."""
    if given is None:
        return {}
    from penstock.client import Comparison, Condition

    lists = [text for text in given if _VALUES.match(text)]
    expressions = [text for text in given if text.strip() and text not in lists]
    conditions = [
        Condition(attribute, Comparison.IN, tuple(values.split(",")))
        for attribute, values in pairs(lists, "--filter").items()
    ]
    together = " and ".join(f"({text})" for text in expressions) if len(expressions) > 1 else "".join(expressions)
    return {"filter": conditions, "filter_expression": together}


def _delays(text: str) -> list[float]:
    try:
        return [float(json.loads(part)) for part in text.split(",") if part.strip()]
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(
            f"{text!r} is not a list of seconds such as 5,60,3600", param_hint="--retry"
        ) from error


def read_secret(text: str | None) -> str | None:
    """Return a secret; - reads the next line of standard input."""
    return typer.get_text_stream("stdin").readline().strip() if text == "-" else text


def oauth2_of(
    url: str | None, client: str | None, secret: str | None, scope: str | None, audience: str | None
) -> "dict[str, OAuth2]":
    """Return the OAuth2 credentials that were given, all of them, or none."""
    if not any((url, client, secret, scope, audience)):
        return {}
    needed = {"--oauth2-url": url, "--oauth2-client": client, "--oauth2-secret": secret}
    if missing := [option for option, value in needed.items() if not value]:
        raise typer.BadParameter(f"OAuth2 needs {' and '.join(missing)}, too")
    from penstock.client import OAuth2

    more = given(scope=scope, audience=audience)
    return {"oauth2": OAuth2(token_url=str(url), client_id=str(client), client_secret=str(read_secret(secret)), **more)}


def certificate_of(certificate: Path | None, key: Path | None) -> "dict[str, ClientCertificate]":
    """Return the client certificate that was given, or none."""
    if certificate is None:
        if key is not None:
            raise typer.BadParameter("--client-key needs --client-cert, too")
        return {}
    from penstock.client import ClientCertificate

    texts: Mapping[str, str] = {
        option: _read(file, option)
        for option, file in (("--client-cert", certificate), ("--client-key", key or certificate))
    }
    public = "".join(_CERTIFICATES.findall(texts["--client-cert"])) or texts["--client-cert"]
    private = _PRIVATE_KEY.search(texts["--client-key"])
    if private is None:
        raise typer.BadParameter(f"{key or certificate} has no private key in PEM", param_hint="--client-key")
    return {"client_certificate": ClientCertificate(public, private[0])}


_CERTIFICATES = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)


def _read(file: Path, option: str) -> str:
    try:
        return file.read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{file} is not PEM: it is not text", param_hint=option) from None
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint=option) from error
