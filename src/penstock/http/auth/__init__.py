"""Authentication: API keys, and the guard against pages of other sites."""

from penstock.http.auth.guard import LOCAL, RequestGuard, bearer_token, is_sent_by_another_site, media_type_of
from penstock.http.auth.keys import (
    ADMIN_ONLY,
    EVERYONE,
    MAY_LOOK,
    MAY_PUBLISH,
    ApiKey,
    Caller,
    CallerScope,
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
    "CallerScope",
    "KeyFile",
    "RequestGuard",
    "Role",
    "bearer_token",
    "digest_of",
    "is_sent_by_another_site",
    "media_type_of",
    "parsed_keys",
    "read_keys",
]
