"""The HTTP server: connections, answers and ASGI."""

from penstock.http.server.asgi import (
    App,
    ClientGone,
    Exchange,
    Headers,
    Message,
    Receive,
    Scope,
    Send,
    accept_lifespan,
    read_body,
    send_answer,
)
from penstock.http.server.server import (
    CHOOSE_ANOTHER,
    HttpServer,
    is_loopback,
    listening_socket,
    run,
    serve,
    serve_until_signal,
    stop_signal,
)
from penstock.http.server.tls import (
    Certificate,
    ServedCertificate,
    served_certificate,
    use_certificate,
    used_certificate,
)

__all__ = [
    "CHOOSE_ANOTHER",
    "App",
    "Certificate",
    "ClientGone",
    "Exchange",
    "Headers",
    "HttpServer",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "ServedCertificate",
    "accept_lifespan",
    "is_loopback",
    "listening_socket",
    "read_body",
    "run",
    "send_answer",
    "serve",
    "serve_until_signal",
    "served_certificate",
    "stop_signal",
    "use_certificate",
    "used_certificate",
]
