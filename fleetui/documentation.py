"""The documentation of the package as pages of HTML, from its Markdown."""

import posixpath
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urldefrag

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fleetui.locations import assets_folder

_IMAGES = (".png",)
_SHORTEST_SEARCH = 3
"""Characters; fewer are in nearly every page."""
_PLACES = {"": 0, "guides": 1, "concepts": 2, "contributing": 4, "adr": 5}
"""The places of folders in the index; those that are not named have place 3."""
_NOT_SLUG = re.compile(r"[^\w\- ]")
_CAPTION = re.compile(r"^:alt: (.*)$", re.MULTILINE)
_INCLUDE = re.compile(r"```{include} (\S+)\n:relative-docs: (\S+)\n```\n")


class UnknownPageError(LookupError):
    """The documentation has no page or image with this path."""


@dataclass(frozen=True, slots=True)
class DocumentationPage:
    title: str
    html: SafeString


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
    file = documentation_files().get(path, Path())
    if file.suffix != ".md":
        raise UnknownPageError(path)
    links = _Links(path, prefix)
    shown: list[Token] = []
    for token in _parser().parse(_text_of(file)):
        directive, _, argument = token.info.partition(" ")
        text = token.content
        if not directive.startswith("{"):
            shown.append(token)
        elif directive == "{figure}":
            words = "".join(_CAPTION.findall(text))
            shown += _parser().parse(f"![{words}]({argument})")
        elif ":hidden:" not in text:
            entries = [
                f"* [{title_of(listed)}]({name}.md)"
                for name in map(str.strip, text.splitlines())
                if (listed := links.path_of(name)) in documentation_files()
            ]
            shown += _parser().parse("\n".join(entries))

    for place, token in enumerate(shown):
        if token.type == "heading_open":
            words = _NOT_SLUG.sub("", shown[place + 1].content.lower())
            token.attrSet("id", words.replace(" ", "-"))
        links.rewrite(token)
    html = _parser().renderer.render(shown, _parser().options, {})
    html = html.replace("<pre>", '<pre tabindex="0">')  # wide ones scroll on a phone
    return DocumentationPage(title_of(path), mark_safe(html))  # noqa: S308 -- of the package, with HTML escaped


def _text_of(file: Path) -> str:
    """Return the text of a page; one that only includes a file has the text and the links of that file."""
    text = file.read_text(encoding="utf-8")
    included = _INCLUDE.fullmatch(text)
    if included:
        text = (file.parent / included[1]).read_text(encoding="utf-8")
        return text.replace(f"]({included[2]}", "](")
    return text


@cache
def title_of(path: str) -> str:
    text = _text_of(documentation_files()[path])
    return text.partition("\n")[0].removeprefix("# ").replace("`", "")


def pages_by_folder() -> dict[str, list[tuple[str, str]]]:
    """Return path and title of every page, by the title of the first page of its folder.

    Tutorials and guides are first, what only developers need is last.
    """
    files = documentation_files()
    folders: dict[str, list[tuple[str, str]]] = {}
    pages = [path for path, file in files.items() if file.suffix == ".md"]
    for path in sorted(pages, key=lambda one: _PLACES.get(posixpath.dirname(one), 3)):
        folder = posixpath.dirname(path)
        starts = (f"{folder}/{name}".lstrip("/") for name in ("index", "README"))
        start = next(name for name in starts if name in files)
        folders.setdefault(title_of(start), []).append((path, title_of(path)))
    return {
        folder: sorted(pages, key=lambda page: page[1].lower())
        for folder, pages in folders.items()
    }


def pages_matching(text: str, *, most: int) -> list[tuple[str, str]]:
    """Return path and title of the pages with every word of a text, first those that have it in the title."""
    words = text.lower().split()
    ranked = []
    for path, file in documentation_files().items():
        if file.suffix != ".md" or len(text) < _SHORTEST_SEARCH:
            continue
        title = title_of(path)
        content = _text_of(file).lower()
        if all(word in content for word in words):
            in_title = sum(word in title.lower() for word in words)
            occurrences = sum(content.count(word) for word in words)
            ranked.append((-in_title, -occurrences, path, title))
    return [(path, title) for _, _, path, title in sorted(ranked)[:most]]


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "xhtmlOut": False}).enable("table")


class _Links:
    def __init__(self, path: str, prefix: str) -> None:
        self.folder = posixpath.dirname(path)
        self.prefix = prefix

    def path_of(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, name))

    def address(self, target: str) -> str:
        """Return the address of a page or an image; a file that is not here leads nowhere."""
        path, fragment = urldefrag(target)
        if not path or "://" in path:
            return target
        path = self.path_of(path.removesuffix(".md"))
        if path not in documentation_files():
            return ""
        anchor = f"#{fragment}" if fragment else ""
        return f"{self.prefix}{path}{anchor}"

    def rewrite(self, text: Token) -> None:
        for token in text.children or ():
            for name in ("href", "src"):
                target = token.attrGet(name)
                if isinstance(target, str):
                    token.attrSet(name, self.address(target))
