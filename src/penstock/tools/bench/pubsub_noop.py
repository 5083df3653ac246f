"""A Publish that answers with ids and stores nothing, on the same gRPC stack: the ceiling of the Pub/Sub server.

python -m penstock.tools.bench.pubsub_noop
"""

from itertools import count

import grpc  # type: ignore[import-untyped]
import uvloop
from google.pubsub_v1 import types

_Request, _Response = types.PublishRequest.pb(), types.PublishResponse.pb()


async def serve() -> None:
    """Serve until killed."""
    numbers = count()

    async def publish(request: types.PublishRequest, _: grpc.aio.ServicerContext) -> types.PublishResponse:
        response: types.PublishResponse = _Response(message_ids=[str(next(numbers)) for _ in request.messages])
        return response

    method = grpc.unary_unary_rpc_method_handler(
        publish, request_deserializer=_Request.FromString, response_serializer=_Response.SerializeToString
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", {"Publish": method})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve())
