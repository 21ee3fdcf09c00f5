"""manage.py staged: staged runs from the command line."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError

from placements.models import ApprovalRequest, StagedRun
from tests.commands import call_command
from tests.rows import person
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.django_db
BY_STAGE = {"canary": ["c001"], "prod": ["c000", "c002"]}


def staged(*words: str) -> str:
    """Run the command; return what it prints."""
    out = StringIO()
    call_command("staged", *words, stdout=out)
    return out.getvalue()


def runs(*words: str) -> str:
    out = StringIO()
    call_command("get", "runs", *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def world() -> StagedWorld:
    """Return a placement with a canary, an approval, and the rest half at a time."""
    made = StagedWorld(
        BY_STAGE, stage("canary", after=True, wait="30s"), stage("prod", most="50%")
    )
    made.place("web", staged_spec())
    return made


@pytest.mark.usefixtures("world")
def test_says_the_stages_before_anything_begins() -> None:
    preview = json.loads(staged("preview", "careful", "web", "-o", "json"))

    assert preview["stages"] == [
        {"name": "canary", "atOnce": "1", "clusters": ["c001"]},
        {"name": "prod", "atOnce": "50% of 2 → 1", "clusters": ["c000", "c002"]},
    ]
    assert not StagedRun.objects.exists()


def test_prepares_resumes_pauses_and_abandons(world: StagedWorld) -> None:
    outputs = [staged("start", "one", "web", "careful", "--prepare")]
    world.work()
    outputs += [
        staged("resume", "one"),
        staged("pause", "one"),
        staged("abandon", "one"),
        runs("-o", "name"),
    ]

    assert [output.split(";")[0].strip() for output in outputs] == [
        "Staged update run one created",
        "Staged update run one started.",
        "Staged update run one paused.",
        "Staged update run one aborted.",
        "staged-run/one",
    ]
    assert StagedRun.objects.get().started_by == "system"


def test_skips_approves_and_says_how_it_stands(world: StagedWorld) -> None:
    staged("start", "one", "web", "careful")
    world.work()
    world.go_on()

    skipped = staged("skip-wait", "one", "canary")
    approved = staged("approve", "one", "canary", "--as", "ann")
    world.work()
    facts = json.loads(staged("status", "one", "-o", "json"))

    assert skipped == "Wait skipped for stage canary of one.\n"
    assert approved == "Stage canary of one approved.\n"
    assert ApprovalRequest.objects.get().approved_by == "ann"
    assert (facts["status"], facts["stage"]) == ("progressing", "prod")


@pytest.mark.nightly
def test_retries_what_failed(world: StagedWorld) -> None:
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.begin("one")
    world.go_on(2)

    assert staged("retry", "one", "c001") == "Retrying one on c001.\n"
    assert list(StagedRun.objects.get().retries) == ["c001"]


@pytest.mark.nightly
def test_lists_what_has_not_ended_of_a_placement(world: StagedWorld) -> None:
    world.begin("one")
    staged("abandon", "one")
    world.begin("two")

    assert runs("-o", "name") == "staged-run/two\nstaged-run/one\n"
    assert runs("--active", "-o", "name") == "staged-run/two\n"
    assert runs("--placement", "other", "-o", "name") == ""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["status", "missing"], 1, "no staged run is named 'missing'"),
        (["pause", "missing"], 1, "no staged run is named 'missing'"),
        (
            ["start", "two", "missing", "careful"],
            2,
            "spec.placementName: no placement is named 'missing'",
        ),
        (
            ["start", "two", "web", "bold"],
            2,
            "spec.stagedRolloutStrategyName: no strategy is named 'bold'",
        ),
        (["start", "Two", "web", "careful"], 2, "metadata.name: "),
        (
            ["start", "one", "web", "careful"],
            2,
            "a run is named one already",
        ),
        (
            ["start", "two", "web", "careful", "--snapshot", "7"],
            2,
            "spec.resourceSnapshotIndex: web has no",
        ),
        (
            ["start", "two", "web", "careful", "--snapshot", "four"],
            2,
            "must be an index",
        ),
        (["preview", "careful", "missing"], 1, "no placement is named 'missing'"),
        (["preview", "bold", "web"], 1, "no staged update strategy is named 'bold'"),
        (
            ["approve", "one", "prod", "--as", "missing"],
            2,
            "no user is named 'missing'",
        ),
        (["approve", "one", "prod", "--as", "ann"], 1, "is not pending approval"),
        (["approve", "one", "prod", "--as", "ana"], 1, "Required role: approver"),
        (["skip-wait", "one", "prod"], 1, "no timed wait in progress"),
        (["retry", "one", "c000"], 1, "only what failed can be retried"),
    ],
)
def test_refuses_what_makes_no_sense(
    world: StagedWorld, words: list[str], code: int, message: str
) -> None:
    person("ana", "operator")
    world.begin("one")

    with pytest.raises(CommandError) as refused:
        staged(*words)

    assert message in str(refused.value)
    assert refused.value.returncode == code
    assert StagedRun.objects.count() == 1


@pytest.mark.nightly
def test_a_preview_says_why_a_run_could_not_begin(world: StagedWorld) -> None:
    world.place("many", staged_spec({"placementType": "PickN", "numberOfClusters": 7}))

    assert "wants 7 clusters and has 3" in staged("preview", "careful", "many")


@pytest.mark.nightly
def test_a_run_that_has_ended_cannot_be_resumed(world: StagedWorld) -> None:
    world.begin("one")
    staged("abandon", "one")

    with pytest.raises(CommandError, match=r"spec\.state") as refused:
        staged("pause", "one")

    assert refused.value.returncode == 2
