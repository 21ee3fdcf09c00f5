"""manage.py resume_hub NAME."""

from placements.hubs.management.commands import pause_hub


class Command(pause_hub.Command):
    """Watch a paused hub again."""

    help = "Watch a paused hub again."
    paused, word = False, "resumed"
