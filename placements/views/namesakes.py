"""Names that a page of its own hides: objects called so have another address, which links use (ui.md 4.2).

Kubernetes allows a cluster named `import` and a placement named `new`, but no name that is only a dash; so
they are at `/clusters/-/import/` and `/placements/-/new/`. What lies under a name is hidden by nothing.
"""

from django.urls import register_converter


class _HiddenName:
    """A name that a page hides; no other name is written or read by it."""

    regex = ""

    def to_python(self, value: str) -> str:
        """Take it as it is."""
        return value

    def to_url(self, value: str) -> str:
        """Write it as it is. Raises ValueError for another, which has its usual address."""
        if value != self.regex:
            raise ValueError(value)
        return value


class HiddenCluster(_HiddenName):
    """The cluster that the page for importing hides."""

    regex = "import"


class HiddenPlacement(_HiddenName):
    """The placement that the page for a new one hides."""

    regex = "new"


def register() -> None:
    """Let addresses use both."""
    register_converter(HiddenCluster, "hidden_cluster")
    register_converter(HiddenPlacement, "hidden_placement")
