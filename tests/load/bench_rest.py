"""`make bench`, memory and rest: the demo of 100 with `make up`, and 100 placements on 100 clusters."""

from tests.load.goals import print_goals
from tests.load.own_console import own_console


def main() -> None:
    """Measure both, and print what was measured and whether it is enough."""
    with own_console():
        # Its rows are models: they need the settings.
        from tests.load.rest import memory, share_at_rest  # noqa: PLC0415 -- only after the folder is set

        print_goals([memory(), share_at_rest()])


if __name__ == "__main__":
    main()
