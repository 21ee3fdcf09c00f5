"""Loads templates as they are sent: indented for the reader of the source, not for the browser."""

import re

from django.template import Origin
from django.template.loaders import filesystem

_INDENTED = re.compile(r"(<(?P<kept>pre|textarea)\b.*?</(?P=kept)>)|(?<=\n) +", re.S)


class Loader(filesystem.Loader):
    """Leaves out the indentation of lines, an eighth of a page, but in text that browsers show as it is."""

    def get_contents(self, origin: Origin) -> str:
        return _INDENTED.sub(lambda match: match[1] or "", super().get_contents(origin))
