"""Keep secrets out of logs, messages and `config show`."""

import re

MASK = "***"

_SECRET_ANYWHERE = ("authorization", "password", "passwd", "secret", "privatekey")
_SECRET_AT_END = ("token", "tokens", "apikey", "accesskey", "cookie")
# Up to the last @ before the path: a password with an unescaped @ must not leak its second half.
_URL_PASSWORD = re.compile(r"(://[^\s/?#:@]*:)[^\s/?#]*@")
_WHOLE_URL_PASSWORD = re.compile(r"(://[^:@]*:).*@", re.DOTALL)
# A quoted value may lack its end, if the text was shortened; a list may contain several.
_NAMED_SECRET = re.compile(
    r"""(?isx)
    ( (?: authorization | passw(?:or)?d | secrets? | tokens? | (?:api|private)[_-]?key | cookie ) ["']? \s*[=:]\s* )
    (?:
        \[ (?: [\s,]* (?: "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? | [^\s,\]"']++ ) )*+ \]?
        | " (?:[^"\\]|\\.)*+ "?
        | ' (?:[^'\\]|\\.)*+ '?
        | (?:(?:bearer|basic)\s+)? [^\s,;&"'}\])]+
    )
    """
)
# The end of a string may be missing too.
_JSON_FIELD = re.compile(r'("([^"\\]{1,100})"\s*+:\s*+)"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Return whether a field of this name is secret: authorization, token, password, secret and similar."""
    flat = name.lower().replace("_", "").replace("-", "")
    return any(word in flat for word in _SECRET_ANYWHERE) or flat.endswith(_SECRET_AT_END)


def mask_secrets(text: str) -> str:
    """Return the text with passwords in URLs and values of secret-looking names replaced by ***."""
    return _NAMED_SECRET.sub(rf"\1{MASK}", _URL_PASSWORD.sub(rf"\1{MASK}@", text))


def mask_json_secrets(text: str) -> str:
    """Return a JSON text with the strings of secret names masked; it stays JSON, and other text stays as it is."""
    return _JSON_FIELD.sub(lambda field: f'{field[1]}"{MASK}"' if is_secret_name(field[2]) else field[0], text)


def mask_whole_url(url: str) -> str:
    """Return a text that is one URL with its password masked, even if the URL is malformed."""
    return mask_secrets(_WHOLE_URL_PASSWORD.sub(rf"\1{MASK}@", url))
