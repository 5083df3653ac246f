"""Authentication: API keys, and the guard against pages of other sites."""

from penstock.http.auth.guard import LOCAL, RequestGuard, is_sent_by_another_site, media_type_of
from penstock.http.auth.keys import (
    ADMIN_ONLY,
    EVERYONE,
    MAY_LOOK,
    MAY_PUBLISH,
    ApiKey,
    Caller,
    KeyFile,
    Role,
    digest_of,
    parsed_keys,
    read_keys,
)

__all__ = [
    "ADMIN_ONLY",
    "EVERYONE",
    "LOCAL",
    "MAY_LOOK",
    "MAY_PUBLISH",
    "ApiKey",
    "Caller",
    "KeyFile",
    "RequestGuard",
    "Role",
    "digest_of",
    "is_sent_by_another_site",
    "media_type_of",
    "parsed_keys",
    "read_keys",
]
