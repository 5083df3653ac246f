"""The receiver as an endpoint of Starlette and FastAPI, Flask, or Django; imports the framework when it is used."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock.client.receiver.receiver import MOST_BODY_BYTES, WebhookReceiver

if TYPE_CHECKING:
    import flask
    from django.http import HttpRequest, HttpResponse
    from starlette.requests import Request
    from starlette.responses import Response

_JSON = "application/json"


def starlette_endpoint(receiver: WebhookReceiver) -> "Callable[[Request], Awaitable[Response]]":
    """Return the endpoint for `app.add_route("/hook", …, methods=["POST"])` of Starlette or FastAPI.

    A plain handler runs in a thread; an async one in the event loop.
    """
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response

    async def endpoint(request: "Request") -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY_BYTES:
                break
        if receiver.is_async:
            answer = await receiver.answer_async(request.headers, bytes(body))
        else:
            answer = await run_in_threadpool(receiver.answer, request.headers, bytes(body))
        return Response(answer.body, answer.status, media_type=_JSON if answer.body else None)

    view: Callable[[Request], Awaitable[Response]] = endpoint
    return view


def flask_view(receiver: WebhookReceiver) -> "Callable[[], flask.Response]":
    """Return the view for `app.add_url_rule("/hook", view_func=…, methods=["POST"])` of Flask."""
    import flask

    def penstock_receiver() -> flask.Response:
        body = flask.request.stream.read(MOST_BODY_BYTES + 1)
        answer = receiver.answer(dict(flask.request.headers), body)
        return flask.Response(answer.body, answer.status, mimetype=_JSON)

    return penstock_receiver


def django_view(receiver: WebhookReceiver) -> "Callable[[HttpRequest], HttpResponse]":
    """Return the view for `path("hook", …)` of Django; it takes POST, and needs no CSRF token."""
    from django.http import HttpResponse
    from django.views.decorators.csrf import csrf_exempt
    from django.views.decorators.http import require_POST

    def penstock_receiver(request: "HttpRequest") -> HttpResponse:
        answer = receiver.answer(request.headers, request.read(MOST_BODY_BYTES + 1))
        return HttpResponse(answer.body, status=answer.status, content_type=_JSON)

    view: Callable[[HttpRequest], HttpResponse] = csrf_exempt(require_POST(penstock_receiver))
    return view
