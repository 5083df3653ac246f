"""The leader's lease in Redis; needs the optional dependency `redis`."""

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from penstock.cluster.errors import LeaseUnavailable

# Redis runs each script atomically. The value of the lease is its holder and token.
_ACQUIRE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
local token = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token, 'PX', ARGV[2])
return token
"""
_RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] .. ' ' .. ARGV[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] .. ' ' .. ARGV[2] then redis.call('DEL', KEYS[1]) end
return 0
"""
_TIMEOUT_S = 5.0


class RedisLease:
    """A named lease, timed by Redis' own clock."""

    def __init__(self, url: str, name: str, holder: str) -> None:
        self._redis = Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
        # In braces, so that a Redis cluster keeps both keys on one node.
        self._keys = [f"penstock:{{{name}}}:leader", f"penstock:{{{name}}}:token"]
        self._holder = holder
        self._acquire = self._redis.register_script(_ACQUIRE)
        self._renew = self._redis.register_script(_RENEW)
        self._release = self._redis.register_script(_RELEASE)

    async def acquire(self, ttl_s: float) -> int | None:
        """Take the lease if it is free; return the fencing token, or None."""
        return await self._run(self._acquire, self._holder, round(ttl_s * 1000))

    async def renew(self, token: int, ttl_s: float) -> bool:
        """Extend the lease to `ttl_s` from now."""
        return bool(await self._run(self._renew, self._holder, token, round(ttl_s * 1000)))

    async def release(self, token: int) -> None:
        """Release the lease."""
        await self._run(self._release, self._holder, token)

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.aclose()

    async def _run(self, script: AsyncScript, *arguments: str | int) -> int | None:
        try:
            answer: int | None = await script(keys=self._keys, args=arguments)
        except (RedisError, OSError) as error:
            raise LeaseUnavailable(f"Redis did not answer for the leader's lease: {error}") from error
        return answer
