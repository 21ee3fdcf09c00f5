"""What the sources of problems share: addresses, and how many of a kind are read."""

from django.urls import get_script_prefix, reverse

from placements.models import ProblemKind

MOST = 2_000
"""Of one kind; beyond, none of that kind counts as ended, since it may be among those that are not read."""
NOT_COUNTED = (
    ProblemKind.PLACEMENT_OUTDATED,
    ProblemKind.CLUSTER_LEAVING,
    ProblemKind.CREDENTIAL_EXPIRES,
    ProblemKind.CHANNEL_SILENT,
)
"""What is no problem yet, only takes its time, or concerns administrators."""


def page(view: str, *arguments: object) -> str:
    """Return the address of a page below the root of its hub."""
    return "/" + reverse(f"web:{view}", args=arguments).removeprefix(
        get_script_prefix()
    )
