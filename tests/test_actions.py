"""Every action of the table by pages, REST and commands: the same role, and the same reason why not."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import unescape
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from django.utils.html import strip_tags
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from clusters.operations.edit import cordon, leave
from fleetui.permissions import Role
from placements.engine.rollout.state import Phase
from placements.models import (
    Binding,
    Drain,
    Eviction,
    Placement,
    PolicySnapshot,
    StagedRun,
)
from placements.services.actions import ACTIONS, Action, ActionKind
from placements.services.bulk_changes import BULK_ACTIONS
from placements.services.disruption.drains import drain
from placements.services.rollouts import operations
from tests.commands import call_command
from tests.rows import NOW, api_token, person
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World, updating_world, world_once

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
BY: dict[str, Any] = {"by": None, "now": NOW}
STARTS = {
    ActionKind.ROLLING: "placements",
    ActionKind.STAGED: "rollouts/staged/runs",
    ActionKind.CLUSTER: "clusters",
}
COMMANDS = {ActionKind.ROLLING: ["rollout"], ActionKind.STAGED: ["staged"]}
COMMAND_NAMES = {"roll-back": "undo", "retry-failed": "retry"}
REST_NAMES = {
    "roll-back": "rollback",
    "retry-failed": "retry",
    "resume": "state",
    "pause": "state",
}
SHOWN_APART = {"pause", "resume", "retry", "retry-failed"}
"""They have a button in rows, or one that changes its name."""


def nothing() -> None:
    """Leave the world as it is."""


def stop() -> None:
    operations.stop("web", **BY)


def roll_back() -> None:
    operations.roll_back("web", 0, **BY)


def fail() -> None:
    Binding.objects.filter(cluster_name="c000").update(phase=Phase.FAILED)


def delete() -> None:
    Placement.objects.update(deleting_since=NOW)


def abandon() -> None:
    operations.abandon("one", **BY)


def stop_run() -> None:
    operations.set_state("one", "Stop", **BY)


def abandon_stopped() -> None:
    stop_run()
    abandon()


def cordon_first() -> None:
    cordon(["c000"], **BY)


def fail_step() -> None:
    run = StagedRun.objects.get()
    plan = operations.plan_of(run)
    steps = tuple(
        replace(step, failed_at=NOW, failures=1) for step in plan.current.steps
    )
    run.plan = plan.with_current(replace(plan.current, steps=steps)).to_plain()
    run.save()


def waiting_world(**tasks: Any) -> StagedWorld:
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", most=2, **tasks))
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    return world


WORLDS: Mapping[str, Callable[[], World]] = {
    "rolling": updating_world,
    "staged": lambda: waiting_world(before=True),
    "timed": lambda: waiting_world(wait="2h"),
}


@dataclass(frozen=True)
class Case:
    """An action in one state of its world; the argument is a cluster, a stage or a revision."""

    kind: ActionKind
    name: str
    world: str
    state: Callable[[], None]
    is_possible: bool
    value: str = ""

    @property
    def action(self) -> Action:
        return ACTIONS[self.kind, self.name]

    @property
    def subject(self) -> str:
        if self.kind is ActionKind.CLUSTER:
            return "c000"
        return "web" if self.kind is ActionKind.ROLLING else "one"

    def why_not(self) -> str:
        if self.kind is ActionKind.CLUSTER:
            return self.action.why_not(MemberCluster.objects.get(name="c000"), None)
        rows: Any = (
            Placement.objects if self.kind is ActionKind.ROLLING else StagedRun.objects
        )
        about = [self.value] if self.action.argument not in ("", "number") else []
        return self.action.why_not(rows.get(), None, *about)

    def page(self) -> str:
        start = STARTS[self.kind]
        value = f"{self.value}/" if self.action.argument not in ("", "number") else ""
        return f"/{start}/{self.subject}/{self.name}/{value}"

    def page_of_subject(self) -> str:
        if self.name == "reapply":
            return f"/placements/web/clusters/{self.value}/"
        return f"/{STARTS[self.kind]}/{self.subject}/"

    def rest(self, client: APIClient) -> Any:
        if self.kind is ActionKind.CLUSTER:
            address = "/api/v1/clusters/c000"
            return (
                client.delete(address)
                if self.name == "leave"
                else client.post(f"{address}/{self.name}")
            )
        is_rolling = self.kind is ActionKind.ROLLING
        start = "placements/web" if is_rolling else "staged-runs/one"
        is_state = not is_rolling and self.name in ("resume", "pause")
        name = (
            REST_NAMES.get(self.name, self.name)
            if is_state or not is_rolling
            else self.name
        )
        name = REST_NAMES[name] if name in ("roll-back", "retry-failed") else name
        body: dict[str, Any] = {self.action.argument: self.value} if self.value else {}
        if self.name == "roll-back":
            body = {"resourceSnapshot": int(self.value)}
        elif self.name == "reapply":
            body = {"clusters": [self.value]}
        elif is_state:
            body = {"state": "Run" if self.name == "resume" else "Stop"}
        return client.post(f"/api/v1/{start}/{name}", body, format="json")

    def command(self, user: str) -> tuple[int, str]:
        """Return the exit code and what the command says."""
        name = COMMAND_NAMES.get(self.name, self.name)
        words = [*COMMANDS.get(self.kind, []), name, self.subject]
        words += ["--resource-snapshot"] if name == "undo" else []
        words += [self.value] if self.value else []
        words += ["--as", user] if self.action.role is Role.APPROVER else []
        out = StringIO()
        try:
            call_command(*words, stdout=out)
        except CommandError as error:
            return error.returncode, str(error)
        return 0, out.getvalue()


def rolling(
    name: str, yes: Callable[[], None], no: Callable[[], None] | None, value: str = ""
) -> list[Case]:
    return _cases(
        ActionKind.ROLLING, name, ("rolling", yes), no and ("rolling", no), value
    )


def staged(
    name: str, yes: Any, no: Any, value: str = "", *, world: str = "staged"
) -> list[Case]:
    return _cases(ActionKind.STAGED, name, (world, yes), ("staged", no), value)


def _cases(kind: ActionKind, name: str, yes: Any, no: Any, value: str) -> list[Case]:
    cases = [Case(kind, name, yes[0], yes[1], is_possible=True, value=value)]
    return (
        [*cases, Case(kind, name, no[0], no[1], is_possible=False, value=value)]
        if no
        else cases
    )


CASES = [
    *rolling("pause", nothing, None),
    *rolling("resume", nothing, None),
    *rolling("stop", nothing, stop),
    *rolling("start", stop, nothing),
    *rolling("unpin", roll_back, nothing),
    *rolling("roll-back", nothing, delete, "0"),
    *rolling("retry", fail, nothing, "c000"),
    *rolling("retry-failed", fail, nothing),
    *rolling("reapply", nothing, delete, "c001"),
    *staged("pause", nothing, abandon),
    *staged("resume", stop_run, abandon_stopped),
    *staged("abandon", nothing, abandon),
    *staged("approve", nothing, abandon, "prod"),
    *staged("skip-wait", nothing, nothing, "prod", world="timed"),
    *staged("retry", fail_step, nothing, "c000"),
    *staged("retry-failed", fail_step, nothing),
    *_cases(ActionKind.CLUSTER, "cordon", ("rolling", nothing), None, ""),
    *_cases(ActionKind.CLUSTER, "uncordon", ("rolling", cordon_first), None, ""),
    *_cases(ActionKind.CLUSTER, "leave", ("rolling", nothing), None, ""),
]
IDS = [
    f"{case.kind}-{case.name}-{'possible' if case.is_possible else 'not'}"
    for case in CASES
]


@dataclass(frozen=True)
class Form:
    """An action with a form of its own: what each door is sent, and a state in which it is not possible."""

    kind: ActionKind
    name: str
    page: tuple[str, dict[str, str]] | None
    rest: tuple[str, str, Any]
    command: tuple[str, ...]
    impossible: Callable[[], None] | None = None

    @property
    def action(self) -> Action:
        return ACTIONS[self.kind, self.name]

    def why_not(self) -> str:
        rows: Any = Placement if self.kind is ActionKind.ROLLING else MemberCluster
        name = "web" if self.kind is ActionKind.ROLLING else "c000"
        return self.action.why_not(rows.objects.get(name=name), None)

    def answers(self, role: str) -> tuple[Any, Any]:
        """Return what the page and REST answer a user; None without a page."""
        user = person("pia", role)
        browser, rest = Client(), APIClient()
        browser.force_login(user)
        rest.credentials(HTTP_AUTHORIZATION=f"Token {api_token(user)}")
        method, path, body = self.rest
        answer = getattr(rest, method)(f"/api/v1/{path}", body, format="json")
        return (browser.post(*self.page) if self.page else None), answer

    def run_command(self) -> tuple[int, str]:
        out = StringIO()
        try:
            call_command(*self.command, stdout=out)
        except CommandError as error:
            return error.returncode, str(error)
        return 0, out.getvalue()


def leave_first() -> None:
    leave(["c000"], **BY)


TAINT = {"key": "gpu", "value": "", "effect": "NoSchedule"}
FORMS = [
    Form(
        ActionKind.ROLLING,
        "reschedule",
        ("/placements/web/reschedule/", {"revision": "1", "decision": "0"}),
        ("post", "placements/web/reschedule", None),
        ("reschedule", "web"),
        delete,
    ),
    Form(
        ActionKind.ROLLING,
        "evict",
        None,
        ("post", "placements/web/evict", {"cluster": "c000"}),
        ("evict", "web", "c000"),
    ),
    Form(
        ActionKind.CLUSTER,
        "drain",
        ("/clusters/c000/drain/", {"do": "start", "how": "drain", "name": "c000"}),
        ("post", "clusters/c000/drain", None),
        ("drain", "c000"),
        leave_first,
    ),
    Form(
        ActionKind.CLUSTER,
        "cancel-drain",
        ("/clusters/c000/drain/", {"do": "cancel"}),
        ("delete", "clusters/c000/drain", None),
        ("cancel-drain", "c000"),
        nothing,
    ),
    Form(
        ActionKind.CLUSTER,
        "labels",
        ("/clusters/c000/edit/", {"do": "save"}),
        ("put", "clusters/c000/labels", {"tier": "1"}),
        ("change_clusters", "labels", "c000", "--set", "tier=1"),
    ),
    Form(
        ActionKind.CLUSTER,
        "taints",
        ("/clusters/c000/edit/", {"do": "save"}),
        ("put", "clusters/c000/taints", [TAINT]),
        ("change_clusters", "taints", "c000", "--add", "gpu:NoSchedule"),
    ),
]


POSSIBLE = [form for form in FORMS if form.name != "cancel-drain"]


def changes() -> list[Any]:
    """Return what these actions change."""
    clusters = MemberCluster.objects.values_list("name", "revision", "membership")
    bindings = Binding.objects.values_list("cluster_name", "state")
    counts = [
        Drain.objects.count(),
        Eviction.objects.count(),
        PolicySnapshot.objects.count(),
    ]
    return [*clusters, *bindings, *counts]


@pytest.mark.parametrize("role", ["viewer", "approver", "cluster-administrator"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_action_with_a_form_requires_one_role_everywhere(
    form: Form, role: str
) -> None:
    world_once("actions rolling", updating_world)
    before = changes()

    page, rest = form.answers(role)

    assert (rest.status_code, rest.json()["detail"]) == (403, form.action.denial)
    if page is not None:
        assert page.status_code == 403
        denial = f"permission to {form.action.verb}. Required role: {form.action.role}."
        assert denial in unescape(" ".join(strip_tags(page.content.decode()).split()))
    assert changes() == before


@pytest.mark.parametrize(
    "form", [one for one in FORMS if one.impossible], ids=lambda form: form.name
)
def test_an_action_with_a_form_is_refused_for_one_reason_everywhere(form: Form) -> None:
    world_once("actions rolling", updating_world)
    assert form.impossible
    form.impossible()
    why_not = form.why_not()
    assert why_not

    page, rest = form.answers("operator")
    code, words = form.run_command()

    assert (page.status_code, rest.status_code, code) == (409, 409, 1)
    assert why_not in unescape(" ".join(strip_tags(page.content.decode()).split()))
    assert why_not in rest.json()["detail"]
    assert why_not in words


@pytest.mark.parametrize("form", POSSIBLE, ids=lambda form: form.name)
def test_an_action_with_a_form_is_possible_by_command_where_the_table_says_so(
    form: Form,
) -> None:
    world_once("actions rolling", updating_world)
    assert form.why_not() == ""
    assert form.run_command()[0] == 0


def test_the_cases_are_all_actions() -> None:
    generic = {key for key, action in ACTIONS.items() if not action.has_form}
    assert {(case.kind, case.name) for case in CASES} == generic
    assert {(form.kind, form.name) for form in FORMS} == set(ACTIONS) - generic
    always = {("rolling", "pause"), ("rolling", "resume")}
    always |= {("cluster", "cordon"), ("cluster", "uncordon"), ("cluster", "leave")}
    assert {
        (case.kind, case.name) for case in CASES if not case.is_possible
    } == generic - always


BULK: dict[str, dict[str, Any]] = {
    "labels": {"labels": {"tier": "1"}},
    "taints": {"add": [TAINT]},
}
BULK_FORMS = {
    "labels": {"label_key": "tier", "label_value": "1"},
    "taints": {"taint_key": "gpu", "taint_value": "", "taint_effect": "NoSchedule"},
}
MANY = ["c000", "c001"]


def bulk_doors(
    name: str, role: str
) -> tuple[Callable[[str], Any], Callable[[], Any], Callable[[], Any]]:
    """Return the doors to an action on many clusters: a step of the page, REST and the command."""
    user = person("pia", role)
    browser, rest = Client(), APIClient()
    browser.force_login(user)
    rest.credentials(HTTP_AUTHORIZATION=f"Token {api_token(user)}")
    form = {"name": " ".join(MANY), "count": "2", **BULK_FORMS.get(name, {})}
    body = {"action": name, "names": MANY, **BULK.get(name, {})}
    words = {"labels": ["--set", "tier=1"], "taints": ["--add", "gpu:NoSchedule"]}.get(
        name, []
    )

    def command() -> tuple[int, str]:
        out = StringIO()
        try:
            call_command("change_clusters", name, *MANY, *words, stdout=out)
        except CommandError as error:
            return error.returncode, str(error)
        return 0, out.getvalue()

    return (
        lambda step: browser.post(
            f"/clusters/bulk/{name}/", {**form, "do": step}, follow=True
        ),
        lambda: rest.post("/api/v1/cluster-changes", body, format="json"),
        command,
    )


@pytest.mark.parametrize("role", ["viewer", "approver", "cluster-administrator"])
@pytest.mark.parametrize("name", BULK_ACTIONS)
def test_an_action_on_many_clusters_requires_the_role_of_the_table(
    name: str, role: str
) -> None:
    world_once("actions rolling", updating_world)
    before = changes()
    action = BULK_ACTIONS[name]
    page, rest, _ = bulk_doors(name, role)

    for step in ("preview", "apply"):
        answer = page(step)
        assert answer.status_code == 403
        denial = f"permission to {action.verb}. required role: {action.role}."
        assert denial in _text(answer)
    refused = rest()

    assert (
        refused.status_code,
        f"the role {action.role}" in refused.json()["detail"],
    ) == (403, True)
    assert changes() == before


@pytest.mark.parametrize(
    ("name", "state"), [("drain", leave_first), ("cancel-drain", nothing)]
)
def test_an_action_on_many_clusters_is_refused_for_the_reason_against_one(
    name: str, state: Callable[[], None]
) -> None:
    world_once("actions rolling", updating_world)
    state()
    before = changes()
    why_not = BULK_ACTIONS[name].why_not(MemberCluster.objects.get(name="c000"), None)
    page, rest, command = bulk_doors(name, "operator")

    preview, posted, answer, said = page("preview"), page("apply"), rest(), command()

    assert why_not
    assert (preview.status_code, 'value="apply"' in preview.content.decode()) == (
        200,
        False,
    )
    assert why_not.lower() in _text(preview)
    assert (posted.status_code, answer.status_code, said[0]) == (409, 409, 1)
    assert why_not.lower() in _text(posted)
    assert why_not in answer.json()["detail"]
    assert why_not in said[1]
    assert changes() == before


@pytest.mark.parametrize("door", ["page", "rest", "command"])
@pytest.mark.parametrize("name", BULK_ACTIONS)
def test_an_action_on_many_clusters_is_done_everywhere(name: str, door: str) -> None:
    world_once("actions rolling", updating_world)
    if name == "uncordon":
        cordon(MANY, **BY)
    if name == "cancel-drain":
        drain(MANY, **BY)
    action = BULK_ACTIONS[name]
    page, rest, command = bulk_doors(name, "operator")
    before = state_of_all(), list(Drain.objects.values())

    if door == "page":
        done = page("apply")
        assert done.redirect_chain == [("/clusters/", 302)]
        assert action.message.format(name="2 clusters").lower() in _text(done)
        undo = re.search(r'name="change" value="([0-9a-f]{32})"', done.content.decode())
        assert bool(undo) == action.is_undone
    elif door == "rest":
        answer = rest()
        assert answer.status_code == 200, answer.content
        assert [
            row["name"] for row in answer.json()["clusters"] if row["change"]
        ] == MANY
    else:
        assert command()[0] == 0

    assert (state_of_all(), list(Drain.objects.values())) != before


def state_of_all() -> str:
    models = (Placement, StagedRun, Binding, MemberCluster)
    return str([row for model in models for row in model.objects.values()])


def _text(answer: Any) -> str:
    return unescape(" ".join(strip_tags(answer.content.decode()).split())).lower()


def roles_for(case: Case) -> list[str]:
    """Return all roles; where the action is not possible one that may act and one that may not.

    There the role is checked before the state, so that the others would only be refused once more.
    """
    if case.is_possible:
        return ["viewer", "operator", "approver", "cluster-administrator"]
    return ["viewer", str(case.action.role)]


@pytest.mark.parametrize(
    ("case", "role"),
    [
        pytest.param(case, role, id=f"{name}-{role}")
        for case, name in zip(CASES, IDS, strict=True)
        for role in roles_for(case)
    ],
)
def test_an_action_is_refused_for_the_same_reason_everywhere(
    case: Case, role: str
) -> None:
    world_once(f"actions {case.world}", WORLDS[case.world])
    case.state()
    why_not = case.why_not()
    assert bool(why_not) is not case.is_possible
    user = person("pia", role)
    browser, rest = Client(), APIClient()
    browser.force_login(user)
    rest.credentials(HTTP_AUTHORIZATION=f"Token {api_token(user)}")
    may_act = role == case.action.role
    subject = browser.get(case.page_of_subject()).content.decode()
    page = browser.get(case.page())

    is_offered = f'"{case.page()}"' in subject
    if case.name not in SHOWN_APART:
        assert is_offered == (may_act and case.is_possible)
    if not may_act:
        denial = f"permission to {case.action.verb}. Required role: {case.action.role}."
        posted, answer = browser.post(case.page()), case.rest(rest)
        assert [page.status_code, posted.status_code, answer.status_code] == [
            403,
            403,
            403,
        ]
        assert denial.lower() in _text(page)
        assert denial.lower() in _text(posted)
        assert denial in answer.json()["detail"]
        if case.action.role is Role.APPROVER:
            code, words = case.command(user.username)
            assert (code, f"required role: {case.action.role}" in words.lower()) == (
                1,
                True,
            )
        return
    assert why_not.lower() in _text(page)
    if case.kind is not ActionKind.CLUSTER:
        title = case.action.title.format(name=case.subject, value=case.value)
        if case.name == "roll-back":  # which says what to
            title = "Roll back to revision 1"
        assert (f">{title}</button>" in page.content.decode()) == case.is_possible
    if case.is_possible:
        return
    posted, answer = browser.post(case.page()), case.rest(rest)
    code, words = case.command(user.username)
    assert (posted.status_code, answer.status_code in (409, 422), code in (1, 2)) == (
        409,
        True,
        True,
    )
    assert why_not.lower() in _text(posted)
    assert why_not in answer.content.decode()
    assert why_not in words


@pytest.mark.parametrize("door", ["page", "rest", "command"])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.is_possible], ids=lambda case: case.page()
)
def test_what_is_possible_is_done_everywhere(case: Case, door: str) -> None:
    world_once(f"actions {case.world}", WORLDS[case.world])
    case.state()
    user = person("pia", case.action.role)
    before = state_of_all()

    if door == "page":
        browser = Client()
        browser.force_login(user)
        form = {"number": "1"} if case.name == "roll-back" else {}
        assert browser.post(case.page(), form).status_code == 302
    elif door == "rest":
        rest = APIClient()
        rest.credentials(HTTP_AUTHORIZATION=f"Token {api_token(user)}")
        answer = case.rest(rest)
        assert answer.status_code in (200, 202), answer.content
    else:
        assert case.command(user.username)[0] == 0

    idle = (
        {"resume", "retry", "retry-failed"}
        if case.kind is ActionKind.ROLLING
        else set()
    )
    assert state_of_all() != before or case.name in idle
