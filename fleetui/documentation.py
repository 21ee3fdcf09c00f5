"""The documentation of the package as pages of HTML, from its Markdown."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urldefrag

from markdown_it import MarkdownIt
from markdown_it.token import Token

from fleetui.locations import assets_folder

_IMAGES = (".png",)
_NOT_SLUG = re.compile(r"[^\w\- ]")
_CAPTION = re.compile(r"^:alt: (?P<alt>.*)$", re.MULTILINE)


class UnknownPageError(LookupError):
    """The documentation has no page or image with this path."""


@dataclass(frozen=True, slots=True)
class DocumentationPage:
    title: str
    html: str


@cache
def documentation_files() -> dict[str, Path]:
    """Return the pages and images by their path: `guides/drain`, `screenshots/decision.png`."""
    folder = assets_folder() / "docs"
    files = {}
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder).as_posix()
        if file.suffix == ".md":
            files[path.removesuffix(".md")] = file
        elif file.suffix in _IMAGES:
            files[path] = file
    return files


def documentation_page(path: str, *, prefix: str) -> DocumentationPage:
    """Return a page; its links to other pages start with `prefix`. Raise UnknownPageError."""
    file = documentation_files().get(path)
    if file is None or file.suffix != ".md":
        raise UnknownPageError(path)
    tokens = _parser().parse(file.read_text(encoding="utf-8"))
    pages = _Links(path, prefix)
    shown = list(_without_directives(tokens, pages))
    for place, token in enumerate(shown):
        if token.type == "heading_open":
            words = _NOT_SLUG.sub("", shown[place + 1].content.lower())
            token.attrSet("id", words.replace(" ", "-"))
        for child in token.children or ():
            pages.rewrite(child)
    renderer = _parser().renderer
    return DocumentationPage(
        title_of(path), renderer.render(shown, _parser().options, {})
    )


def title_of(path: str) -> str:
    """Return the first heading of a page as text."""
    text = documentation_files()[path].read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


class _Links:
    """The links and images of one page, relative to its folder."""

    def __init__(self, path: str, prefix: str) -> None:
        self.folder = posixpath.dirname(path)
        self.prefix = prefix

    def address(self, target: str) -> str:
        """Return the address of a page or an image; a file that is not here leads nowhere."""
        path, fragment = urldefrag(target)
        if not path or "://" in path:
            return target
        path = posixpath.normpath(posixpath.join(self.folder, path))
        path = path.removesuffix(".md")
        if path not in documentation_files():
            return ""
        anchor = f"#{fragment}" if fragment else ""
        return f"{self.prefix}{path}{anchor}"

    def rewrite(self, token: Token) -> None:
        for name in ("href", "src"):
            target = token.attrGet(name)
            if isinstance(target, str):
                token.attrSet(name, self.address(target))


def _without_directives(tokens: list[Token], links: _Links) -> Iterator[Token]:
    """Yield the tokens of a page with figures and lists of pages in place of their directives."""
    for token in tokens:
        directive, _, argument = token.info.partition(" ")
        if token.type != "fence" or not directive.startswith("{"):
            yield token
        elif directive == "{figure}":
            found = _CAPTION.search(token.content)
            alt = found["alt"] if found else ""
            yield from _parser().parse(f"![{alt}]({argument})")
        elif ":hidden:" not in token.content:
            yield from _parser().parse("\n".join(_entries(token.content, links)))


def _entries(toctree: str, links: _Links) -> Iterator[str]:
    for line in toctree.splitlines():
        path = posixpath.normpath(posixpath.join(links.folder, line.strip()))
        if path in documentation_files():
            yield f"* [{title_of(path)}]({line.strip()}.md)"
