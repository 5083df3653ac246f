"""The HTTP server: connections, answers, ASGI."""

from penstock.http.server.asgi import App, Exchange, Headers, Receive, Scope, Send, accept_lifespan, answer
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
    "answer",
    "listening_socket",
    "run",
    "serve",
    "serve_until_signal",
    "stop_signal",
]
