"""Changing clusters from their pages, and importing some."""

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from clusters.models import MemberCluster, Membership
from clusters.operations.edit import change_labels, cordon
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from tests.rows import NOW, joined, member_document, person
from tests.web.reading import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

EDIT = "/clusters/nimblefox/edit/"


def _cluster(name: str = "nimblefox") -> MemberCluster:
    return MemberCluster.objects.get(name=name)


def _labels(name: str = "nimblefox") -> dict[str, str]:
    labels: dict[str, str] = _cluster(name).document["metadata"]["labels"]
    return labels


def test_leaving_is_confirmed_with_what_it_would_do(operator: Client) -> None:
    page = operator.get("/clusters/nimblefox/leave/").content.decode()

    assert "Remove nimblefox from fleet?" in page
    assert "bravelion" in page
    assert ">− " not in page
    assert 'class="label leaves">nimblefox' in page
    assert _cluster().membership == Membership.JOINED


def test_a_confirmed_cluster_leaves(operator: Client) -> None:
    answer = operator.post("/clusters/nimblefox/leave/")

    assert (answer.status_code, answer["Location"]) == (302, "/clusters/nimblefox/")
    assert _cluster().membership == Membership.LEAVING
    assert Event.objects.order_by("-id")[0].facts["by"] == "ana"


@pytest.mark.nightly
def test_cordons_and_uncordons(operator: Client) -> None:
    operator.post("/clusters/nimblefox/cordon/", {"next": "/clusters/"})
    cordoned = operator.get("/clusters/nimblefox/").content.decode()
    operator.post("/clusters/nimblefox/uncordon/")

    assert "/clusters/nimblefox/uncordon/" in cordoned
    assert (
        'name="next" value="/clusters/"><button class="button plain">Undo' in cordoned
    )
    assert not _cluster().taints.exists()


def test_says_that_nothing_would_change(operator: Client) -> None:
    assert (
        "No placement changes its clusters"
        in operator.get("/clusters/bravelion/cordon/").content.decode()
    )


@pytest.mark.nightly
def test_checking_an_edit_says_what_it_would_do_and_saves_nothing(
    operator: Client,
) -> None:
    given = {
        "labels": "region=east\nteam=a",
        "taints": "gpu",
        "revision": "1",
        "do": "check",
    }

    answer = operator.post(EDIT, given)

    assert answer.status_code == 200
    assert "Impact on placements" in answer.content.decode()
    assert 'name="label_value" value="a"' in answer.content.decode()
    assert _labels() == {"region": "west"}


def test_an_edit_of_taints_keeps_the_cordon(operator: Client) -> None:
    cordon(["nimblefox"], by=None, now=NOW)

    form = operator.get(EDIT).content.decode()
    operator.post(EDIT, {"taints": "gpu", "revision": "2", "do": "save"})

    assert "Cordoned" in form
    assert "cordon-key" not in form
    keys = [taint["key"] for taint in _cluster().document["spec"]["taints"]]
    assert keys == ["gpu", "cordon-key"]


@pytest.mark.nightly
def test_saves_labels_and_taints_as_one_change(operator: Client) -> None:
    given = {"labels": " region = east \n\nteam=", "taints": "gpu=true\nold:NoSchedule"}

    answer = operator.post(EDIT, {**given, "revision": "1", "do": "save"})

    assert answer.status_code == 302
    assert _labels() == {"region": "east", "team": ""}
    assert _cluster().document["spec"]["taints"] == [
        {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "old", "effect": "NoSchedule"},
    ]
    assert _cluster().revision == 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("labels", "region", "Invalid value"),
        ("labels", "a=b\na=c", "Duplicate key"),
        ("labels", "no key!=x", "metadata.labels"),
        ("taints", "gpu:Never", "spec.taints[0].effect"),
        ("taints", "gpu\ngpu", "spec.taints[1]"),
    ],
)
def test_faults_stand_beside_their_field(
    operator: Client, field: str, text: str, words: str
) -> None:
    answer = operator.post(
        EDIT, {"labels": "", "taints": "", "revision": "1", "do": "save", field: text}
    )
    page = answer.content.decode()
    beside = page.partition(f'id="{field}-errors"')[2].partition("</ul>")[0]

    assert answer.status_code == 422
    assert words in beside
    assert f'aria-describedby="{field}-hint {field}-errors"' in page
    assert _labels() == {"region": "west"}


def test_comes_up_as_its_address_suggests_and_saves_nothing(operator: Client) -> None:
    page = page_text(operator.get(EDIT, {"label": "env=canary", "without": "region"}))

    assert re.search(
        r'name="label_key" value="env".*name="label_value" value="canary"', page
    )
    assert (
        "<strong>env=canary</strong>, <strong>remove region</strong>. Not saved."
        in page
    )
    assert "Impact on placements" in page
    assert _labels() == {"region": "west"}


def test_a_suggested_label_stands_in_the_place_of_the_one_of_its_key(
    operator: Client,
) -> None:
    page = operator.get(EDIT, {"label": " region =\neast<b>"}).content.decode()

    assert 'name="label_value" value=" east&lt;b&gt;"' in page


def test_a_suggestion_that_is_no_label_is_refused_in_the_words_of_the_form(
    operator: Client,
) -> None:
    answer = operator.get(EDIT, {"label": "region=no east"})

    assert answer.status_code == 422
    assert "metadata.labels.region" in answer.content.decode()
    assert "Not saved" not in answer.content.decode()


def test_shows_every_fault_of_both_fields_with_its_line(operator: Client) -> None:
    given = {
        "labels": "region\n\na=b c\nno key=x\na=d",
        "taints": "gpu\nold:Never",
        "revision": "1",
    }
    page = operator.post(EDIT, {**given, "do": "check"}).content.decode()
    labels, taints = (
        re.findall(
            r"<strong>line (\d+)</strong>",
            page.partition(f'id="{field}-errors">')[2].partition("</ul>")[0],
        )
        for field in ("labels", "taints")
    )

    assert labels == ["1", "3", "4", "5"]
    assert taints == ["2"]
    assert "Duplicate key" in page


def test_refuses_a_stale_edit_and_says_who_saved(operator: Client) -> None:
    change_labels(
        ["nimblefox"], put={"team": "b"}, by=person("li", "operator"), now=NOW
    )

    given = {"labels": "team=mine", "taints": "", "revision": "1", "do": "save"}
    refused = operator.post(EDIT, given)
    page = refused.content.decode()
    again = operator.post(EDIT, {**given, "revision": "2"})

    assert refused.status_code == 409
    assert "li changed this object" in page
    assert 'name="label_value" value="mine"' in page
    assert 'name="revision" value="2"' in page
    assert again.status_code == 302
    assert _labels() == {"team": "mine"}


def test_previews_an_import_and_imports_it(operator: Client) -> None:
    documents = [
        member_document("palemoth", {"region": "south"}),
        member_document("nimblefox"),
    ]
    text = "---\n".join(map(dump_yaml, documents))

    preview = operator.post("/clusters/import/", {"text": text, "do": "check"})
    count = MemberCluster.objects.count()
    done = operator.post("/clusters/import/", {"text": text, "do": "import"})

    assert "1 added, 1 changed, 0 unchanged" in page_text(preview)
    assert count == 3
    assert (done.status_code, done["Location"]) == (302, "/clusters/")
    assert _labels("palemoth") == {"region": "south"}


def test_imports_a_file(operator: Client) -> None:
    file = SimpleUploadedFile(
        "fleet.yaml", dump_yaml(member_document("palemoth")).encode()
    )

    operator.post("/clusters/import/", {"file": file, "do": "import"})

    assert _cluster("palemoth").is_eligible


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text": ""}, "Required value"),
        ({"text": dump_yaml(member_document("Not A Name"))}, "metadata.name"),
        ({"file": SimpleUploadedFile("fleet.yaml", b"\xff\xfe")}, "Must be UTF-8 text"),
    ],
)
def test_refuses_an_import_with_its_faults(
    operator: Client, given: dict[str, object], words: str
) -> None:
    answer = operator.post("/clusters/import/", {**given, "do": "import"})

    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert MemberCluster.objects.count() == 3


def test_a_cluster_that_is_gone_cannot_be_changed(operator: Client) -> None:
    joined("other")

    assert operator.post("/clusters/missing/leave/").status_code == 404
    assert operator.post("/clusters/missing/edit/").status_code == 404


@pytest.mark.parametrize(
    "wanted",
    ["-1", "1", "web:overview", "x.y", "//example.com/", "https://example.com/", ""],
)
@pytest.mark.parametrize(
    "address", ["/clusters/a/leave/", "/clusters/a/cordon/", "/theme/"]
)
def test_what_is_no_path_of_this_host_is_no_place_to_go_to(
    operator: Client, wanted: str, address: str
) -> None:
    joined("a")

    answer = operator.post(address, {"next": wanted, "theme": "dark"})

    assert answer.status_code == 302
    assert answer["Location"] in ("/", "/clusters/a/")


def test_an_action_on_all_that_match_says_that_others_match_than_were_shown(
    operator: Client,
) -> None:
    listed = operator.get("/clusters/").content.decode()
    [matched] = re.findall(r'name="matched" value="(\d+)"', listed)
    given = {"all": "1", "matched": matched}
    same = page_text(operator.post("/clusters/bulk/cordon/", given))
    joined("newcomer")
    more = page_text(operator.post("/clusters/bulk/cordon/", given))

    assert "when the list was shown" not in same
    number = int(matched)
    assert f"{number + 1} clusters match now, {number} when the list was shown." in more
    assert '<a href="/clusters/newcomer/">newcomer</a>' in more
