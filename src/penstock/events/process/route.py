"""`POST /api/dispatch/process`: where routers send pointers."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.domain.limits import KIB
from penstock.domain.pointer import PROCESS_PATH
from penstock.edge.clock import Clock
from penstock.events.process.processor import Processed, Processor
from penstock.events.process.tokens import AuthTokens
from penstock.http.api import Call, NoQuery, route
from penstock.http.problems import Refused

_BEARER = "Bearer "


class Pointed(msgspec.Struct, frozen=True, rename="camel"):
    """The job that a pointer names."""

    message_id: Annotated[str, Meta(min_length=1, max_length=100)]


class ProcessRoute:
    """The process endpoint; the scheduler's token gives access to one job."""

    def __init__(self, processor: Processor, tokens: AuthTokens, clock: Clock) -> None:
        self._processor = processor
        self._tokens = tokens
        self._clock = clock

    @route(
        "POST",
        PROCESS_PATH,
        summary="Deliver a job. For routers, with the token from the job's pointer.",
        max_body_bytes=4 * KIB,
        refusals=(HTTPStatus.SERVICE_UNAVAILABLE,),
        open=True,
    )
    async def _process(self, call: Call[NoQuery, Pointed]) -> Processed:
        authorization = call.headers.get("authorization", "")
        token = authorization.removeprefix(_BEARER) if authorization.startswith(_BEARER) else ""
        if not self._tokens.check(token, call.body.message_id, self._clock.now_ms()):
            detail = "the token is missing, expired, or not for this job; the job is unchanged"
            raise Refused(HTTPStatus.UNAUTHORIZED, detail, {"www-authenticate": "Bearer"})
        return await self._processor.process(call.body.message_id)
