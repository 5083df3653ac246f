"""For mkdocs: a link to a file of the repository outside docs/ becomes its path, and must exist."""

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with such links as text."""
    here = (ROOT / "docs" / page.file.src_uri).parent

    def plain(link: re.Match[str]) -> str:
        target = (here / link[2]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri} links to {link[2]}, which does not exist")
        path = target.relative_to(ROOT).as_posix()
        return link[1] if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    return _LINK.sub(plain, markdown)
