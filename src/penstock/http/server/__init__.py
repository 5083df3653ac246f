"""The HTTP server: connections, answers and ASGI."""

from penstock.http.server.asgi import App, Exchange, Headers, Receive, Scope, Send, accept_lifespan, send_answer
from penstock.http.server.server import (
    CHOOSE_ANOTHER,
    HttpServer,
    listening_socket,
    run,
    serve,
    serve_until_signal,
    stop_signal,
)

__all__ = [
    "CHOOSE_ANOTHER",
    "App",
    "Exchange",
    "Headers",
    "HttpServer",
    "Receive",
    "Scope",
    "Send",
    "accept_lifespan",
    "listening_socket",
    "run",
    "send_answer",
    "serve",
    "serve_until_signal",
    "stop_signal",
]
