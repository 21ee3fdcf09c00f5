"""Writing placements as YAML, and deleting them."""

import re

import pytest
from django.test import Client

from placements.manifests import dump_yaml
from placements.models import Binding, Placement
from placements.operations.placements import save_placement
from tests.rows import NOW, person, pick_n_spec, placement_document

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

NEW, EDIT = "/placements/new/", "/placements/web/edit/"


def _yaml(number: int, name: str = "web") -> str:
    return dump_yaml(placement_document(name, pick_n_spec(number)))


def _number(name: str = "web") -> int | None:
    return Placement.objects.get(name=name).number_of_clusters


def test_checking_says_who_would_join_leave_and_stay(operator: Client) -> None:
    answer = operator.post(EDIT, {"manifest": _yaml(3), "revision": "1", "do": "check"})
    page = answer.content.decode()

    assert answer.status_code == 200
    assert re.findall(r"<dt>(\d \w+)</dt>", page) == ["1 join", "0 leave", "2 stay"]
    assert 'class="label joins" href="/clusters/bravelion/"' in page
    assert "what is placed is kept" in page
    assert _number() == 2


def test_checking_tells_what_may_surprise(operator: Client) -> None:
    spec = {**pick_n_spec(1), "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}
    text = dump_yaml(placement_document("web", spec))

    page = operator.post(EDIT, {"manifest": text, "revision": "1", "do": "check"}).content.decode()

    assert "Warnings" in page
    assert "in-place updates will not start" in page


def test_saves_a_change(operator: Client) -> None:
    answer = operator.post(EDIT, {"manifest": _yaml(3), "revision": "1", "do": "save"})

    assert (answer.status_code, answer["Location"]) == (302, "/placements/web/")
    assert _number() == 3


def test_saves_a_new_placement(operator: Client) -> None:
    template = operator.get(NEW).content.decode()
    answer = operator.post(NEW, {"manifest": _yaml(1, "api"), "revision": "0", "do": "save"})

    assert "name: my-placement" in template
    assert answer["Location"] == "/placements/api/"
    assert _number("api") == 1


def test_a_new_placement_overwrites_none(operator: Client) -> None:
    answer = operator.post(NEW, {"manifest": _yaml(3), "revision": "0", "do": "save"})

    assert answer.status_code == 409
    assert _number() == 2


@pytest.mark.parametrize("do", ["check", "save"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_yaml(2).replace("numberOfClusters: 2", "numberOfClusters: many"), r"line 1\d.*numberOfClusters"),
        (_yaml(2).replace("kind: Cluster", "kind: Klusta"), "kind"),
        (_yaml(2, "other"), "line 4.*a name cannot be changed"),
        (_yaml(2) + "---\n" + _yaml(2), "there are 2 documents"),
        ("a: [", "is not valid YAML"),
        ("", "there is no document"),
    ],
)
def test_faults_stand_beside_the_text_with_their_lines(
    operator: Client, do: str, text: str, words: str
) -> None:
    answer = operator.post(EDIT, {"manifest": text, "revision": "1", "do": do})
    faults = answer.content.decode().partition('id="manifest-faults"')[2].partition("</ul>")[0]

    assert answer.status_code == 422
    assert re.search(words, re.sub(r"<[^>]*>", "", faults))
    assert _number() == 2


def test_what_may_not_be_changed_is_refused_with_its_line(operator: Client) -> None:
    text = dump_yaml(placement_document("web", {**pick_n_spec(2), "policy": {"placementType": "PickAll"}}))

    answer = operator.post(EDIT, {"manifest": text, "revision": "1", "do": "save"})

    assert answer.status_code == 422
    assert re.search(r"line \d+</strong> <code>spec.policy.placementType", answer.content.decode())


def test_refuses_a_stale_edit_and_says_who_saved_what(operator: Client) -> None:
    save_placement(placement_document("web", pick_n_spec(3)), by=person("li", "operator"), now=NOW)

    given = {"manifest": _yaml(1), "revision": "1", "do": "save"}
    refused = operator.post(EDIT, given)
    page = refused.content.decode()
    again = operator.post(EDIT, {**given, "revision": "2"})

    assert refused.status_code == 409
    assert "li changed it" in page
    assert "spec.policy.numberOfClusters: <del>2</del> <ins>3</ins>" in page
    assert "numberOfClusters: 1" in page
    assert again.status_code == 302
    assert _number() == 1


def test_deleting_says_what_would_happen(operator: Client) -> None:
    page = operator.get("/placements/web/delete/").content.decode()

    assert "It goes at once" in page
    assert re.findall(r'class="label leaves">(\w+)<', page) == ["jumpingcat", "nimblefox"]


def test_deletes_what_was_not_carried_out_at_once(operator: Client) -> None:
    answer = operator.post("/placements/web/delete/")

    assert answer["Location"] == "/placements/"
    assert not Placement.objects.exists()


def test_deleting_waits_for_what_was_carried_out(operator: Client) -> None:
    Binding.objects.filter(cluster_name="nimblefox").update(state="Bound", phase="available")

    page = operator.get("/placements/web/delete/").content.decode()
    answer = operator.post("/placements/web/delete/")
    shown = operator.get("/placements/web/").content.decode()

    assert "removed from 1 cluster;" in page
    assert answer["Location"] == "/placements/web/"
    assert "being deleted" in shown
