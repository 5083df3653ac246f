"""`--tls-cert` and `--tls-key`, the same for every command that serves HTTP or gRPC."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Chain = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Serve by TLS with this certificate chain (PEM).")
]
Key = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's private key (PEM).")]


def with_tls(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the two options; servers that it starts use the certificate."""

    @wraps(command)
    def secured(*arguments: Any, tls_cert: Path | None = None, tls_key: Path | None = None, **options: Any) -> None:
        if (tls_cert is None) is not (tls_key is None):
            missing = "--tls-cert" if tls_cert is None else "--tls-key"
            raise typer.BadParameter(f"a certificate and its key go together; add {missing}")
        if tls_cert is not None and tls_key is not None:
            from penstock.http.server import Certificate, use_certificate

            use_certificate(Certificate(tls_cert, tls_key))
        command(*arguments, **options)

    signature = inspect.signature(command)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in (("tls_cert", Chain), ("tls_key", Key))
    ]
    vars(secured)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *more])
    secured.__annotations__ = {**command.__annotations__, "tls_cert": Chain, "tls_key": Key}
    return secured
