"""`make bench`, polling: 200 tabs on one rollout of a console that runs as a process of its own."""

import sys
from typing import Any

from tests.load.own_console import own_console

TABS, SECONDS, GOAL = 200, 20.0, 0.25


def main() -> None:
    """Measure, and print what was measured; fail where it is too much."""
    with own_console() as folder:
        _measure(folder)


def _measure(folder: str) -> None:
    from tests.load.polling import poll, with_children  # noqa: PLC0415 -- only after the folder is set
    from tests.runtime.processes import watching  # noqa: PLC0415 -- as above
    from tests.runtime.test_up import parts_of  # noqa: PLC0415 -- as above

    world, cookie = _world(), _cookie()
    variables = {
        "FLEETUI_VAR_DIR": folder,
        "FLEETUI_ADMIN_PASSWORD": "long enough for anyone",
    }
    print(
        f"{TABS} tabs on one rollout, each polls every two seconds, for {SECONDS:.0f} s, by one web process:"
    )
    print(
        f"{'the run':>9} {'answers/s':>10} {'204':>6} {'200':>6} {'slowest':>8} {'of a core':>10} {'goal':>6}"
    )
    with watching("manage.py", "up", "--port", "0", "--only", "web", **variables) as up:
        port = int(up.wait_for(r"http://127\.0\.0\.1:(\d+)/")[1])
        # Not those of the whole console: the one that announced the address ends soon after.
        processes = with_children(parts_of(up)["web"])
        missed = False
        for name, meanwhile in (("stays", None), ("changes", world.pass_time)):
            found = poll(
                port,
                "/rollouts/web/1/",
                cookie,
                processes=processes,
                tabs=TABS,
                seconds=SECONDS,
                meanwhile=meanwhile,
            )
            missed = missed or found.share > GOAL
            _print(name, found)
        up.process.terminate()
        up.process.wait(timeout=30)
    if missed:
        sys.exit(f"the tabs cost more than {GOAL:.0%} of a core")


def _print(name: str, found: Any) -> None:
    wrong = {
        status: count
        for status, count in found.answers.items()
        if status not in (200, 204)
    }
    if wrong:
        sys.exit(f"some answers were {wrong}")
    print(
        f"{name:>9} {found.answers.total() / found.seconds:>10.0f} {found.unchanged:>6.0%} "
        f"{1 - found.unchanged:>6.0%} {found.slowest:>6.2f} s {found.share:>10.1%} {GOAL:>6.0%}",
        flush=True,
    )


def _world() -> Any:
    from tests.rows import spec  # noqa: PLC0415 -- as above
    from tests.services.rollouts.world import World  # noqa: PLC0415 -- only after the folder is set

    world = World(50)
    one_by_one = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1},
    }
    world.place("web", spec({"placementType": "PickAll"}, strategy=one_by_one))
    return world


def _cookie() -> str:
    from django.conf import settings  # noqa: PLC0415 -- as above
    from django.test import Client  # noqa: PLC0415 -- as above

    from fleetui.permissions import Role  # noqa: PLC0415 -- as above
    from tests.rows import person  # noqa: PLC0415 -- as above

    client = Client()
    client.force_login(person("ana", Role.VIEWER))
    return f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"


if __name__ == "__main__":
    main()
