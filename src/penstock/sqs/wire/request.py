"""An HTTP request as it arrived, before anything in it is believed."""

import msgspec


class SignedRequest(msgspec.Struct, frozen=True):
    """What a signature covers; path, query and headers are the bytes of the wire, not decoded."""

    method: str
    path: bytes
    query_string: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
