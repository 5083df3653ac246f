"""Secrets and header values of subscriptions and jobs, encrypted where they are stored (AES-256-GCM).

A sealed value is `sealed:v1:KEY:TEXT`: the name of the key, which is part of its hash, and nonce with ciphertext in
base64. The id of the subscription or job is authenticated too, so that a value that was moved to another row cannot be
opened; a replay has the id of the original.
Values stay sealed in memory, in Spark and in the API; they are opened for a delivery.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.delivery.errors import SecretUnreadable
from penstock.domain.errors import FailedPrecondition
from penstock.domain.job import DispatchJob
from penstock.domain.replay import original_id
from penstock.domain.subscription import Subscription
from penstock.edge.randomness import random_bytes
from penstock.ops.config import JobsOptions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED = "sealed:v1:"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_NAME_CHARS = 8
_SEPARATORS = re.compile(r"[,\s]+")
_ADVICE = "set the key with which it was encrypted in jobs.encryption_keys or jobs.encryption_key_file"


class SecretBox:
    """Seals with the first key, and opens with any, so that a key can be replaced; without keys it seals nothing."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {_name_of(key): key for key in keys}
        self._first = next(iter(self._keys), "")

    def sealed(self, subscription: Subscription) -> Subscription:
        """Return a subscription as it is stored: every secret and header value sealed with the first key."""
        if not self._first:
            return subscription
        return _replaced(subscription, lambda value: self._seal(value, _of_subscription(subscription)))

    def sealed_headers(self, headers: Mapping[str, str], job_id: str) -> Mapping[str, str]:
        """Return the headers of a new job as they are stored."""
        if not self._first or not headers:
            return headers
        return {name: self._seal(value, _of_job(job_id)) for name, value in headers.items()}

    def opened_job(self, job: DispatchJob) -> DispatchJob:
        """Return a job as a delivery needs it; SecretUnreadable if its key is missing or wrong."""
        if not any(value.startswith(SEALED) for value in job.headers.values()):
            return job
        opened = {name: self._open(value, _of_job(job.id)) for name, value in job.headers.items()}
        return msgspec.structs.replace(job, headers=opened)

    def sealed_for_rest(self, subscription: Subscription) -> Subscription:
        """Return a stored subscription as it should be stored; SecretUnreadable if its key is missing or wrong."""
        self.opened(subscription)
        return self.sealed(subscription)

    def opened(self, subscription: Subscription) -> Subscription:
        """Return a subscription as a delivery needs it; SecretUnreadable if its key is missing or wrong."""
        if not _is_sealed(subscription):
            return subscription
        return _replaced(subscription, lambda value: self._open(value, _of_subscription(subscription)))

    def _seal(self, value: str, owner: "_Owner") -> str:
        if value.startswith(f"{SEALED}{self._first}:"):
            return value
        nonce = random_bytes(_NONCE_BYTES)
        text = self._open(value, owner).encode()
        content = nonce + self._ciphers[self._first].encrypt(nonce, text, owner.id.encode())
        return f"{SEALED}{self._first}:{b64encode(content).decode()}"

    def _open(self, value: str, owner: "_Owner") -> str:
        if not value.startswith(SEALED):
            return value
        from cryptography.exceptions import InvalidTag

        name, _, text = value.removeprefix(SEALED).partition(":")
        cipher = self._ciphers.get(name)
        if cipher is None:
            has = f"this process has {', '.join(self._keys)}" if self._keys else "this process has no key"
            raise SecretUnreadable(f"a secret of {owner.text} is encrypted with key {name}, and {has}: {_ADVICE}")
        try:
            content = b64decode(text, validate=True)
            return cipher.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], owner.id.encode()).decode()
        except (InvalidTag, ValueError) as error:
            text = f"a secret of {owner.text} is damaged: it cannot be decrypted with its key {name}; replace it"
            raise SecretUnreadable(text) from error

    @cached_property
    def _ciphers(self) -> "dict[str, AESGCM]":
        # Imported when it is used: most installations have no keys, and the import costs every start 20 ms.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return {name: AESGCM(key) for name, key in self._keys.items()}


class _Owner(NamedTuple):
    """What a value belongs to."""

    id: str
    text: str


def _of_subscription(subscription: Subscription) -> _Owner:
    return _Owner(subscription.id, f"subscription {subscription.name!r} ({subscription.id})")


def _of_job(job_id: str) -> _Owner:
    return _Owner(original_id(job_id), f"job {job_id}")


def encryption_keys(options: JobsOptions) -> tuple[bytes, ...]:
    """Return the keys for secrets at rest, the one that encrypts first: of the setting, then of the file."""
    keys = [_parsed(text, "jobs.encryption_keys") for text in _SEPARATORS.split(options.encryption_keys) if text]
    if options.encryption_key_file:
        path = Path(options.encryption_key_file).expanduser()
        try:
            lines = path.read_text(encoding="ascii", errors="replace")
        except OSError as error:
            raise FailedPrecondition(f"jobs.encryption_key_file {path} cannot be read: {error.strerror}") from error
        found = [_parsed(text, f"jobs.encryption_key_file {path}") for text in _SEPARATORS.split(lines) if text]
        if not found:
            raise FailedPrecondition(f"jobs.encryption_key_file {path} has no key; {_HOW_TO_CREATE}")
        keys += found
    return tuple(dict.fromkeys(keys))


_HOW_TO_CREATE = f"create one with `openssl rand -base64 {_KEY_BYTES}`"


def _parsed(text: str, where: str) -> bytes:
    try:
        key = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        # Without the text, which may be a key with a typing error.
        raise FailedPrecondition(f"{where} has a key that is not {_KEY_BYTES} bytes in base64; {_HOW_TO_CREATE}")
    return key


def _name_of(key: bytes) -> str:
    return sha256(b"penstock encryption key" + key).hexdigest()[:_NAME_CHARS]


def _is_sealed(subscription: Subscription) -> bool:
    return any(value.startswith(SEALED) for value in _values(subscription))


def _values(subscription: Subscription) -> Iterator[str]:
    """Yield what is sealed."""
    yield from subscription.secrets
    yield from subscription.headers.values()
    if subscription.oauth2 is not None:
        yield subscription.oauth2.client_secret
    if subscription.client_certificate is not None:
        yield subscription.client_certificate.private_key


def _replaced(subscription: Subscription, replace: Callable[[str], str]) -> Subscription:
    oauth2, certificate = subscription.oauth2, subscription.client_certificate
    if oauth2 is not None:
        oauth2 = msgspec.structs.replace(oauth2, client_secret=replace(oauth2.client_secret))
    if certificate is not None:
        certificate = msgspec.structs.replace(certificate, private_key=replace(certificate.private_key))
    return msgspec.structs.replace(
        subscription,
        secrets=tuple(map(replace, subscription.secrets)),
        headers={name: replace(value) for name, value in subscription.headers.items()},
        oauth2=oauth2,
        client_certificate=certificate,
    )
