"""Reading a page as a strict browser would: what is open, what is closed out of order, which headings."""

import re
from html.parser import HTMLParser
from typing import Any

_NUMBERS = re.compile(r"height: \d+px|(--[a-z]+:-?\d+(\.\d+)?(;(?!$)|$))+")
"""A style of numbers alone, which style sheets calculate with: a picture is right without scripts, too."""
_VOID = {"meta", "link", "br", "hr", "img", "input"}
_ALONE = {"circle", "path"}
_BLOCK = (
    "body|main|header|footer|nav|section|article|aside|div|p|ul|ol|li|dl|dt|dd|table|caption|colgroup|col|thead|tbody"
    "|tr|th|td|form|fieldset|legend|details|summary|figure|h[1-6]|option|datalist|dialog|br"
)
_UNSEEN = re.compile(
    rf" ?(</?(?:{_BLOCK})\b[^>]*>) ?"  # around and at the edges of a block
    r"|(<(?:a|button|select|span class=\"(?:button|label))\b[^>]*>) | (</(?:a|button|select)>)"  # in a box
)
"""White space beside a tag that no browser shows."""
_AS_IT_IS = re.compile(
    r"(<(?:pre|textarea|code)\b.*?</(?:pre|textarea|code)>|value=\"[^\"\n]*\n[^\"]*\")",
    re.S,
)
"""Text and values with lines of their own."""


def page_text(answer: Any) -> str:
    """Return a page on one line, without the white space that does not show; text as it is stays so."""
    pieces = _AS_IT_IS.split(answer.content.decode())
    for place in range(0, len(pieces), 2):
        line = re.sub(r"[ \n]+", " ", pieces[place]).replace(" >", ">")
        pieces[place] = _UNSEEN.sub(
            lambda match: match[1] or match[2] or match[3], line
        )
    return "".join(pieces)


def words_of(page: str) -> str:
    """Return what a page says, without tags: a space between blocks, and what shows between the rest."""
    text = re.sub(rf"</?(?:{_BLOCK})\b[^>]*>", " ", page)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", text))


class Outline(HTMLParser):
    """Follows the tags of a page, and notes what the rules of the project forbid."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[int] = []
        self.errors: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        """Note a tag and its attributes."""
        given = dict(attributes)
        if len(given) < len(attributes):
            self.errors.append(f"<{tag}> has an attribute twice")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        has_style = "style" in given and not _NUMBERS.fullmatch(given["style"] or "")
        if (
            tag == "style"
            or has_style
            or any(name.startswith(("on", "hx-on")) for name in given)
        ):
            self.errors.append(f"<{tag}> has a style or a handler of its own")
        if (
            tag == "script"
            and not given.get("src")
            and given.get("type") != "application/json"
        ):
            self.errors.append("an inline script")
        if tag == "label" and given.get("for"):
            self.labelled.add(str(given["for"]))
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden":
            self.fields.append((tag, given))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag not in _VOID | _ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note a tag that is closed out of order."""
        if tag in _ALONE:
            return
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"</{tag}> out of order")

    @property
    def problems(self) -> list[str]:
        """Return everything that is wrong with the page."""
        twice = [
            f"id {one} is used twice"
            for one in set(self.ids)
            if self.ids.count(one) > 1
        ]
        nameless = [
            f"{tag} {given}"
            for tag, given in self.fields
            if given.get("id") not in self.labelled and not given.get("aria-label")
        ]
        return [
            *self.errors,
            *(f"<{tag}> is never closed" for tag in self.open),
            *twice,
            *nameless,
        ]

    @property
    def is_ordered(self) -> bool:
        """Return whether there is one h1, first, and no level is left out on the way down."""
        steps = zip(self.headings, self.headings[1:], strict=False)
        return (
            self.headings.count(1) == 1
            and self.headings[0] == 1
            and all(b - a <= 1 for a, b in steps)
        )
