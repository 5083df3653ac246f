"""Keeping secrets out of logs, messages and `config show`."""

import re

MASK = "***"

_SECRET_ANYWHERE = ("authorization", "password", "passwd", "secret")
_SECRET_AT_END = ("token", "tokens", "apikey", "accesskey", "cookie")
# Up to the last @ before the path: a password with an unescaped @ must not leak its second half.
_URL_PASSWORD = re.compile(r"(://[^\s/?#:@]*:)[^\s/?#]*@")
_WHOLE_URL_PASSWORD = re.compile(r"(://[^:@]*:).*@", re.DOTALL)
# A quoted value may have lost its end, where somebody cut the text short; a list may hold several.
_NAMED_SECRET = re.compile(
    r"""(?isx)
    ( (?: authorization | passw(?:or)?d | secrets? | tokens? | api[_-]?key | cookie ) ["']? \s*[=:]\s* )
    (?:
        \[ (?: [\s,]* (?: "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? | [^\s,\]"']++ ) )*+ \]?
        | " (?:[^"\\]|\\.)*+ "?
        | ' (?:[^'\\]|\\.)*+ '?
        | (?:(?:bearer|basic)\s+)? [^\s,;&"'}\])]+
    )
    """
)


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret: authorization, token, password, secret and their like."""
    flat = name.lower().replace("_", "").replace("-", "")
    return any(word in flat for word in _SECRET_ANYWHERE) or flat.endswith(_SECRET_AT_END)


def mask_secrets(text: str) -> str:
    """The text with passwords in URLs and values of secret-looking names replaced by ***."""
    return _NAMED_SECRET.sub(rf"\1{MASK}", _URL_PASSWORD.sub(rf"\1{MASK}@", text))


def mask_whole_url(url: str) -> str:
    """A text that is one URL, its password masked even where it breaks the rules of URLs."""
    return mask_secrets(_WHOLE_URL_PASSWORD.sub(rf"\1{MASK}@", url))
