"""The MD5 of a message body, which clients check."""

import hashlib

try:
    from _md5 import md5 as _own_md5  # type: ignore[import-not-found]
except ImportError:  # left out of an interpreter that takes every digest from OpenSSL
    _own_md5 = hashlib.md5

# Up to here OpenSSL takes longer to set a digest up than the interpreter's own takes to make it.
_SHORT_BYTES = 2048


def body_md5(body: bytes) -> str:
    """The digest in hexadecimal."""
    md5 = _own_md5 if len(body) < _SHORT_BYTES else hashlib.md5
    return str(md5(body, usedforsecurity=False).hexdigest())
