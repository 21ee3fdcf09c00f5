"""Drafts: started once for each user and placement, rebased, confirmed with what was previewed."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.apimachinery.yaml_edit import SetValue, edit
from fleetui.concurrency import RevisionConflict
from placements.models import Decision, Draft, Placement, PolicySnapshot
from placements.services.editor.operations import (
    DraftExists,
    ReviewedDraft,
    Side,
    UnknownDraftError,
    confirm_draft,
    discard_draft,
    rebase_draft,
    start_draft,
)
from placements.services.editor.preview import preview_draft
from placements.services.editor.validation import PlacementDraft
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.scheduling import PreviewOutdatedError
from tests.rows import (
    NOW,
    decided,
    joined,
    namespace,
    person,
    pick_n_spec,
    placed,
    placement_document,
    run_due,
)

pytestmark = pytest.mark.django_db
NUMBER = ("spec", "policy", "numberOfClusters")


@pytest.fixture
def ana() -> User:
    """Return an operator."""
    return person("ana", "operator")


@pytest.fixture
def web() -> Placement:
    """Make three clusters and the placement `web` on two of them."""
    apply_resources([namespace("shop")], by=None, now=NOW)
    for name, region in (
        ("bravelion", "east"),
        ("jumpingcat", "west"),
        ("nimblefox", "west"),
    ):
        joined(name, region=region)
    return decided("web", pick_n_spec(2))


def _draft(web: Placement | None, ana: User, number: int = 3) -> Draft:
    document = web.document if web else placement_document("api", pick_n_spec(1))
    text = "# mine\n" + edit(dump_yaml(document), [SetValue(NUMBER, number)])
    return start_draft(text, placement=web, by=ana, now=NOW)


def _reviewed(draft: Draft) -> ReviewedDraft:
    preview = preview_draft(
        PlacementDraft.parse(plain_manifest(draft.text)), saved=draft.placement, now=NOW
    )
    assert preview.decision_id
    return ReviewedDraft(
        PlacementDraft(plain_manifest(draft.text)).digest, preview.decision_id
    )


def _saved_by_li(number: int, **annotations: str) -> None:
    document = placement_document("web", pick_n_spec(number), **annotations)
    save_placement(document, by=person("li", "operator"), now=NOW)


def _data(draft: Draft) -> Any:
    draft.refresh_from_db()
    return load_documents(plain_manifest(draft.text))[0].data


def test_a_person_has_one_draft_of_a_placement(web: Placement, ana: User) -> None:
    first = _draft(web, ana)

    with pytest.raises(DraftExists) as refused:
        _draft(web, ana)

    assert refused.value.draft == first
    assert _draft(web, person("li", "operator")).pk != first.pk


def test_another_user_has_no_such_draft(web: Placement, ana: User) -> None:
    draft = _draft(web, ana)

    with pytest.raises(UnknownDraftError):
        discard_draft(draft.pk, by=person("li", "operator"))

    assert Draft.objects.get() == draft


@pytest.mark.nightly
def test_confirming_saves_decides_and_lets_the_draft_go(
    web: Placement, ana: User
) -> None:
    draft = _draft(web, ana)
    reviewed = _reviewed(draft)

    confirm_draft(draft.pk, reviewed=reviewed, by=ana, now=NOW)

    web.refresh_from_db()
    latest = Decision.objects.order_by("-number")[0]
    assert (web.revision, web.number_of_clusters, web.is_due) == (2, 3, False)
    assert latest.record.decision_id == reviewed.decision_id
    assert (latest.triggered_by, latest.trigger) == ("ana", "numberOfClusters 2 → 3")
    assert placed(web) == ["bravelion", "jumpingcat", "nimblefox"]
    assert not Draft.objects.exists()
    assert run_due() == 0


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_confirming_a_new_placement_makes_it_with_its_decision(ana: User) -> None:
    draft = _draft(None, ana, 2)

    confirm_draft(draft.pk, reviewed=_reviewed(draft), by=ana, now=NOW)

    assert placed(Placement.objects.get(name="api")) == ["jumpingcat", "nimblefox"]


@pytest.mark.nightly
def test_a_new_policy_makes_a_snapshot_and_its_decision_together(
    web: Placement, ana: User
) -> None:
    constraint = {"topologyKey": "region", "maxSkew": 1}
    text = edit(
        dump_yaml(web.document),
        [SetValue(("spec", "policy", "topologySpreadConstraints", 0), constraint)],
    )
    draft = start_draft(text, placement=web, by=ana, now=NOW)

    confirm_draft(draft.pk, reviewed=_reviewed(draft), by=ana, now=NOW)

    assert PolicySnapshot.objects.get(is_latest=True).number == 1
    assert Decision.objects.order_by("-number")[0].policy_number == 1
    assert placed(web) == ["bravelion", "nimblefox"]


@pytest.mark.nightly
def test_a_fleet_that_changed_since_the_preview_saves_nothing(
    web: Placement, ana: User
) -> None:
    draft = _draft(web, ana)
    reviewed = _reviewed(draft)
    joined("zebra", region="east")

    with pytest.raises(PreviewOutdatedError) as refused:
        confirm_draft(draft.pk, reviewed=reviewed, by=ana, now=NOW)

    web.refresh_from_db()
    assert not refused.value.is_text
    assert (web.revision, web.number_of_clusters, Decision.objects.count()) == (1, 2, 1)
    assert Draft.objects.get() == draft


def test_a_draft_that_changed_since_the_review_saves_nothing(
    web: Placement, ana: User
) -> None:
    draft = _draft(web, ana)
    reviewed = _reviewed(draft)
    Draft.objects.update(text=plain_manifest(draft.text).replace("mine", "other"))

    with pytest.raises(PreviewOutdatedError) as refused:
        confirm_draft(draft.pk, reviewed=reviewed, by=ana, now=NOW)

    assert refused.value.is_text
    assert Placement.objects.get().revision == 1


def test_what_was_saved_meanwhile_is_not_overwritten(web: Placement, ana: User) -> None:
    draft = _draft(web, ana)
    reviewed = _reviewed(draft)
    _saved_by_li(1)

    with pytest.raises(RevisionConflict):
        confirm_draft(draft.pk, reviewed=reviewed, by=ana, now=NOW)

    assert Placement.objects.get().number_of_clusters == 1
    assert Draft.objects.get() == draft


def test_a_new_placement_overwrites_none_of_its_name(web: Placement, ana: User) -> None:
    draft = start_draft(dump_yaml(web.document), placement=None, by=ana, now=NOW)

    with pytest.raises(RevisionConflict):
        confirm_draft(draft.pk, reviewed=_reviewed(draft), by=ana, now=NOW)


def test_a_draft_at_fault_is_not_saved(web: Placement, ana: User) -> None:
    draft = start_draft(
        plain_manifest(_draft(web, person("li")).text).replace("PickN", "Pick"),
        placement=web,
        by=ana,
        now=NOW,
    )

    with pytest.raises(InvalidManifest) as refused:
        confirm_draft(
            draft.pk,
            reviewed=ReviewedDraft(
                PlacementDraft(plain_manifest(draft.text)).digest, ""
            ),
            by=ana,
            now=NOW,
        )

    assert {error.line for error in refused.value.errors} == {13}


def test_a_draft_of_what_is_saved_already_changes_nothing(
    web: Placement, ana: User
) -> None:
    draft = _draft(web, ana, 2)

    confirm_draft(
        draft.pk,
        reviewed=ReviewedDraft(PlacementDraft(plain_manifest(draft.text)).digest, ""),
        by=ana,
        now=NOW,
    )

    assert Placement.objects.get().revision == 1
    assert not Draft.objects.exists()


@pytest.mark.parametrize(
    ("keep", "number", "note"), [(Side.MINE, 3, None), (Side.THEIRS, 1, "theirs")]
)
def test_rebasing_keeps_the_text_that_is_chosen(
    web: Placement, ana: User, keep: Side, number: int, note: str | None
) -> None:
    draft = _draft(web, ana)
    _saved_by_li(1, note="theirs")

    rebase_draft(draft.pk, keep=keep, by=ana, now=NOW)

    assert _data(draft)["spec"]["policy"]["numberOfClusters"] == number
    assert (
        _data(draft)["metadata"].get("annotations", {}).get("fleetui.io/note") == note
    )
    assert plain_manifest(draft.text).startswith("# mine\n") is (keep is Side.MINE)
    assert (draft.revision, draft.base) == (2, Placement.objects.get().document)
    if keep is Side.MINE:
        confirm_draft(draft.pk, reviewed=_reviewed(draft), by=ana, now=NOW)
        assert Placement.objects.get().revision == 3


@pytest.mark.nightly
def test_a_draft_outlives_its_placement_as_a_new_one(web: Placement, ana: User) -> None:
    draft = _draft(web, ana)
    web.delete()
    draft.refresh_from_db()

    confirm_draft(draft.pk, reviewed=_reviewed(draft), by=ana, now=NOW)

    assert Placement.objects.get().number_of_clusters == 3
