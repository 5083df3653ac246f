"""Form parameters as a tree: `Attribute.1.Name=x` is the text Name under 1 under Attribute.

The cost of reading them depends only on the number of bytes: an index is a key, never a size.
"""

from binascii import a2b_qp

from penstock.sqs.errors import ErrorKind, SqsError

# Ten entries of ten attributes need about 400.
MAX_PARAMETERS = 4096
_MAX_DEPTH = 8


class Parameters:
    """One level of names: those that end here with their texts, and those that continue."""

    __slots__ = ("nested", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.nested: dict[str, Parameters] = {}

    def put(self, name: str, text: str) -> None:
        """Store `text` under its dotted name; names deeper than any action's are not split further."""
        level, last = self, name
        if "." in name:
            *path, last = name.split(".", _MAX_DEPTH)
            for step in path:
                level = level.under(step)
        # A signature does not cover the order of two equal names, so neither may win.
        if level.texts.setdefault(last, text) != text:
            raise SqsError(ErrorKind.SERIALIZATION, f"The parameter {name[:100]!r} appears twice.")

    def under(self, name: str) -> "Parameters":
        """Return the names that continue after `name`."""
        found = self.nested.get(name)
        if found is None:
            found = self.nested[name] = Parameters()
        return found


def read(query_string: bytes, body: bytes) -> Parameters:
    """Return the parameters of a query string and a form body together."""
    data = b"&".join((query_string, body)) if query_string and body else query_string or body
    if data.count(b"&") >= MAX_PARAMETERS:
        raise SqsError(ErrorKind.SERIALIZATION, f"The request has more than {MAX_PARAMETERS} parameters.")
    parameters = Parameters()
    try:
        for pair in data.split(b"&"):
            name, _, value = pair.partition(b"=")
            parameters.put(_text(name), _text(value))
    except UnicodeDecodeError:
        raise SqsError(ErrorKind.SERIALIZATION, "The request's parameters are not UTF-8.") from None
    return parameters


def _text(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = _unescaped(raw)
    return raw.decode()


def _unescaped(raw: bytes) -> bytes:
    """Undo percent-escapes, as quoted-printable with another sign: in C, without an object for every escape."""
    data = a2b_qp(raw.replace(b"=", b"=3D").replace(b"%", b"="))
    # A valid escape shortens the text by two, an invalid one by less, unless it reads as a soft line break.
    soft_line_end = b"%\n" in raw or b"%\r" in raw
    if soft_line_end or len(data) != len(raw) - 2 * raw.count(b"%"):
        raise SqsError(ErrorKind.SERIALIZATION, "A % in the parameters is not followed by two hexadecimal digits.")
    return data
