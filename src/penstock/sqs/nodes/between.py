"""What the shards of a cluster ask each other, here or by one hop (SQS-NODE-10)."""

import asyncio

import msgspec

from penstock.cluster.nodes import Node
from penstock.sqs.auth.caller import Hop, SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.nodes.owners import Owners, ServedQueues, error_of
from penstock.sqs.nodes.shards import ShardMap
from penstock.sqs.queue.other_shards import SHARD_TARGET, ShardAnswer, ShardRequest

_NODE = SqsCaller(b"")
_encode = msgspec.json.Encoder().encode
_decode_answer = msgspec.json.Decoder(ShardAnswer).decode
_decode_request: msgspec.json.Decoder[ShardRequest] = msgspec.json.Decoder(ShardRequest)


def read_shard_request(body: bytes) -> ShardRequest:
    """Return the request in the body of a hop."""
    try:
        return _decode_request.decode(body)
    except msgspec.DecodeError as error:
        raise SqsError(ErrorKind.SERIALIZATION, f"The request body cannot be read: {error}.") from None


class ClusterShards:
    """The other shards of a cluster, as one shard knows them."""

    def __init__(self, own: str, shards: ShardMap, owners: Owners) -> None:
        self._own = own
        self._shards = shards
        self._owners = owners

    def have(self, key: str) -> bool:
        """Return whether the queue with this key belongs to another shard."""
        return self._shards.of_key(key) != self._own

    async def ask(self, key: str, request: ShardRequest) -> ShardAnswer:
        """Ask the owner of the queue's shard."""
        return await self._ask(self._shards.of_key(key), request)

    async def ask_all(self, request: ShardRequest) -> list[ShardAnswer]:
        """Ask the owners of all other shards."""
        others = [shard for shard in self._shards.all if shard != self._own]
        return list(await asyncio.gather(*(self._ask(shard, request) for shard in others)))

    async def _ask(self, shard: str, request: ShardRequest) -> ShardAnswer:
        body = _encode(request)

        async def here(served: ServedQueues) -> ShardAnswer:
            return await served.service.transfers.answer(request)

        async def ask(owner: Node) -> ShardAnswer:
            answer = await self._owners.ask(owner, Hop(shard), _NODE, body=body, target=SHARD_TARGET)
            if answer.status != 200:
                raise error_of(answer)
            return _decode_answer(answer.body)

        # Accepting again is harmless: the origins are known by then.
        return await self._owners.call(shard, here, ask, repeatable=True)
