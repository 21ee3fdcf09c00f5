"""`make bench`, pages: processor time of the main pages and of a keystroke, with 5,000 clusters."""

import statistics
from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Any

from tests.load.goals import Goal, print_goals
from tests.load.own_console import own_console

_SIZE = 5_000
_ROUNDS = 9
_PLACEMENT = "sessions"
_LISTS_MS, _PICTURES_MS, _MOST_MS = 60.0, 80.0, 100.0


def main() -> None:
    """Measure each page after two requests that do not count, and print the medians."""
    with own_console():
        client, decision = _loaded()
        addresses = {
            "overview": ("/", _LISTS_MS),
            "clusters": ("/clusters/", _LISTS_MS),
            "placements": ("/placements/", _LISTS_MS),
            "rollouts": ("/rollouts/", _LISTS_MS),
            "resources": ("/resources/", _LISTS_MS),
            "placement": (f"/placements/{_PLACEMENT}/", _PICTURES_MS),
            "decision": (f"/decisions/{decision}/", _PICTURES_MS),
            "topology": ("/topology/", _MOST_MS),
            "what-if": ("/what-if/", _MOST_MS),
            "plan": (f"/placements/{_PLACEMENT}/plan/", _MOST_MS),
            "reschedule": (f"/placements/{_PLACEMENT}/reschedule/", _MOST_MS),
            "few moves": (
                f"/placements/{_PLACEMENT}/reschedule/?moves=fewest",
                _MOST_MS,
            ),
            "editor": (f"/placements/{_PLACEMENT}/edit/", _MOST_MS),
        }
        goals = []
        for name, (address, most) in addresses.items():
            answer = client.get(address, follow=True)
            assert answer.status_code == 200, (address, answer.status_code)
            fetch = _fetch(client, address)
            goals.append(_goal(name, fetch, most))
        goals.append(_goal("a keystroke", _keystroke(client), _MOST_MS))
        print(f"{_SIZE:,} clusters, medians of {_ROUNDS}:")
        print_goals(goals)


def _fetch(client: Any, address: str) -> Callable[[], object]:
    return lambda: client.get(address, follow=True)


def _goal(name: str, fetch: Callable[[], object], most: float) -> Goal:
    for _ in range(2):
        fetch()
    spent = []
    for _ in range(_ROUNDS):
        began = process_time()
        fetch()
        spent.append(1e3 * (process_time() - began))
    median = statistics.median(spent)
    return Goal(
        f"CPU of {name}", f"<= {most:.0f} ms", f"{median:.0f} ms", median <= most
    )


def _loaded() -> tuple[Any, str]:
    """Load the demo; return a browser and the id of the decision of the measured placement."""
    from django.contrib.auth.models import User  # noqa: PLC0415 -- only after the folder is set
    from django.core.management import call_command  # noqa: PLC0415 -- as above
    from django.test import Client  # noqa: PLC0415 -- as above
    from django.utils import timezone  # noqa: PLC0415 -- as above

    from placements.models import Decision  # noqa: PLC0415 -- as above
    from placements.services.demo import load  # noqa: PLC0415 -- as above

    call_command("collectstatic", interactive=False, verbosity=0)
    load.load_demo(_SIZE, by=None, now=timezone.now())
    client = Client(HTTP_HOST="localhost")
    client.force_login(User.objects.create_superuser("root"))
    decisions = Decision.objects.filter(placement__name=_PLACEMENT)
    latest = decisions.select_related("record").latest("pk")
    return client, latest.record.decision_id


def _keystroke(client: Any) -> Callable[[], object]:
    """Begin to edit; return what posts the next number of clusters, which is decided anew each time."""
    from placements.models import Draft  # noqa: PLC0415 -- only after the folder is set
    from tests.load.test_page_budgets import _fields_of  # noqa: PLC0415 -- as above

    page = client.get(f"/placements/{_PLACEMENT}/edit/", follow=True)
    fields = _fields_of(page.content.decode())
    numbers = count(100)

    def change() -> object:
        sent = {**fields, "spec.policy.numberOfClusters": str(next(numbers))}
        answer = client.post(address, sent, headers={"HX-Request": "true"})
        assert answer.status_code == 200, answer.status_code
        return answer

    address = f"/placements/{_PLACEMENT}/edit/"
    change()
    draft = Draft.objects.filter(placement__name=_PLACEMENT).latest("pk")
    address = f"/drafts/{draft.pk}/"
    return change


if __name__ == "__main__":
    main()
