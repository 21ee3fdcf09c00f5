"""Apply YAML: nothing is applied that was not previewed, and each object shows its difference."""

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.models import Placement, Resource
from placements.services.resources.operations import apply_resources
from placements.web import apply as apply_pages
from tests.rows import (
    NOW,
    config_map,
    member_document,
    namespace,
    pick_n_spec,
    placement_document,
)
from tests.web.editing import APPLY, applied, digest_in
from tests.web.reading import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]
SETTINGS = config_map("settings", data={"color": "blue"})


def text_of(*documents: dict[str, Any]) -> str:
    return "---\n".join(map(dump_yaml, documents))


def preview(client: Client, text: str) -> str:
    page: str = page_text(client.post(APPLY, {"manifest": text}))
    return page


def objects_in(page: str) -> list[tuple[str, str]]:
    """Return the result and name of each object of a preview."""
    found = re.findall(
        r'<span class="did">([^<]*)</span> <strong>([^<]*)</strong>', page
    )
    return [*found, *(("Refused", name) for name in _refused(page))]


def _refused(page: str) -> list[str]:
    return re.findall(r"Refused</span> <strong>([^<]*)</strong>", page)


def test_a_preview_shows_the_difference_of_each_object_and_writes_nothing(
    operator: Client,
) -> None:
    documents = (namespace("shop"), namespace("other"), SETTINGS, member_document("a"))
    before = Event.objects.count()

    page = preview(operator, text_of(*documents))

    assert objects_in(page) == [
        ("Would be created", "Namespace other"),
        ("Would be changed", "ConfigMap shop/settings"),
        ("Would be joined", "MemberCluster a"),
        ("Unchanged", "Namespace shop"),
    ]
    assert "color: blue" in page.partition('id="apply-preview"')[2]
    assert Event.objects.count() == before
    assert 'class="button primary" name="previewed"' in page


def test_the_preview_follows_the_text_without_an_alert(operator: Client) -> None:
    def follow(text: str) -> tuple[int, str]:
        sent = {"manifest": text} if text else {}  # a large text is left out
        answer = operator.post(APPLY, sent, headers={"HX-Request": "true"})
        return answer.status_code, page_text(answer)

    status, part = follow(text_of(namespace("other")))
    broken_status, broken = follow("kind: ConfigMap\nmetadata: {name")
    left_out_status, left_out = follow("")

    assert part.startswith('<section class="stack apply-preview" id="apply-preview"')
    assert (status, objects_in(part)) == (
        200,
        [("Would be created", "Namespace other")],
    )
    done = operator.post(
        APPLY, {"manifest": text_of(namespace("other")), "previewed": digest_in(part)}
    )
    assert done.status_code == 200
    assert broken_status == left_out_status == 422
    assert "<strong>line 2</strong>" in broken
    assert "a text above 200 kB" in left_out
    for one in (broken, left_out):
        assert 'role="alert"' not in one
        assert not digest_in(one)


def test_a_text_of_another_team_is_refused_where_the_preview_is(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise apply_pages.NotOfTeamError("shop belongs to another team")

    monkeypatch.setattr(apply_pages, "preview_acceptable", refuse)

    part = operator.post(
        APPLY, {"manifest": text_of(SETTINGS)}, headers={"HX-Request": "true"}
    )

    assert part.status_code == 422
    assert "shop belongs to another team" in page_text(part)


@pytest.mark.parametrize("address", [APPLY, f"{APPLY}dry-run/"])
def test_a_file_that_is_no_text_is_refused(operator: Client, address: str) -> None:
    broken = SimpleUploadedFile("all.yaml", b"kind: \xff\xfe")

    answer = operator.post(address, {"file": broken})

    assert answer.status_code == 422
    assert "Must be UTF-8 text" in page_text(answer)


def test_what_was_previewed_is_applied(operator: Client) -> None:
    done = applied(operator, text_of(SETTINGS))

    assert "1 document applied" in page_text(done)
    assert Resource.objects.get(name="settings").content["data"] == {"color": "blue"}


def test_the_results_have_the_kind_of_each_object(operator: Client) -> None:
    done = page_text(applied(operator, text_of(SETTINGS, member_document("a"))))

    found = re.findall(r'<td>(\w+)</td>\s*<th scope="row"><a[^>]*>([^<]*)</a>', done)
    assert found == [("ConfigMap", "shop/settings"), ("MemberCluster", "a")]


def test_a_placement_is_the_next_step_after_what_no_placement_selects(
    operator: Client,
) -> None:
    done = page_text(applied(operator, text_of(namespace("other"))))
    joined = page_text(applied(operator, text_of(member_document("a"))))
    selected = page_text(applied(operator, text_of(SETTINGS)))

    assert [
        page.count(">Create placement</a>") for page in (done, joined, selected)
    ] == [1, 1, 0]


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_nothing_is_applied_without_a_preview(operator: Client, how: str) -> None:
    text: Any = text_of(namespace("other"))
    if how == "file":
        text = SimpleUploadedFile("other.yaml", text.encode())

    page = page_text(operator.post(APPLY, {how: text}))

    assert not Resource.objects.filter(name="other").exists()
    assert "name: other" in page.partition('name="manifest"')[2]
    assert digest_in(page)


def test_a_change_in_between_shows_the_preview_again(operator: Client) -> None:
    text = text_of(SETTINGS)
    digest = digest_in(preview(operator, text))
    apply_resources([config_map("settings", data={"color": "red"})], by=None, now=NOW)

    again = operator.post(APPLY, {"manifest": text, "previewed": digest})
    page = page_text(again)

    assert again.status_code == 409
    assert "has changed since your preview" in page
    assert "color: <del>red</del>" in page
    assert Resource.objects.get(name="settings").content["data"] == {"color": "red"}
    done = operator.post(APPLY, {"manifest": text, "previewed": digest_in(page)})
    assert done.status_code == 200
    assert Resource.objects.get(name="settings").content["data"] == {"color": "blue"}


def test_another_text_than_the_previewed_one_is_previewed_first(
    operator: Client,
) -> None:
    digest = digest_in(preview(operator, text_of(namespace("other"))))

    answer = operator.post(
        APPLY, {"manifest": text_of(namespace("third")), "previewed": digest}
    )

    assert answer.status_code == 409
    assert objects_in(page_text(answer)) == [("Would be created", "Namespace third")]
    assert not Resource.objects.filter(name__in=("other", "third")).exists()


def test_a_change_in_between_stops_an_apply_in_batches(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placements.services.apply.MOST_AT_ONCE", 1)
    text = text_of(namespace("other"), SETTINGS)
    digest = digest_in(preview(operator, text))
    apply_resources([namespace("other", team="a")], by=None, now=NOW)

    stopped = operator.post(APPLY, {"manifest": text, "previewed": digest})
    current = digest_in(page_text(stopped))
    done = operator.post(APPLY, {"manifest": text, "previewed": current})

    assert (stopped.status_code, done.status_code) == (409, 200)


def test_a_secret_that_changed_in_between_is_noticed_and_never_shown(
    operator: Client,
) -> None:
    def secret(value: str) -> dict[str, Any]:
        return {
            **config_map("login"),
            "kind": "Secret",
            "data": {"password": value},
        }

    apply_resources([secret("b2xk")], by=None, now=NOW)
    text = text_of(secret("bmV3"))
    page = preview(operator, text)
    apply_resources([secret("b3RoZXI=")], by=None, now=NOW)

    again = operator.post(APPLY, {"manifest": text, "previewed": digest_in(page)})

    assert objects_in(page) == [("Would be changed", "Secret shop/login")]
    assert "bmV3" not in page.partition('id="apply-preview"')[2]
    assert "b2xk" not in page
    assert again.status_code == 409


def test_refused_documents_are_named_beside_those_that_would_be_applied(
    operator: Client,
) -> None:
    text = text_of(
        config_map("lost", in_="nowhere"),
        namespace("other"),
        placement_document(
            "api", {**pick_n_spec(1), "policy": {"numberOfClusters": -1}}
        ),
    )

    answer = operator.post(APPLY, {"manifest": text})
    page = page_text(answer)

    assert answer.status_code == 422
    assert objects_in(page) == [
        ("Would be created", "Namespace other"),
        ("Refused", "ConfigMap lost"),
        ("Refused", "ClusterResourcePlacement api"),
    ]
    assert "<strong>line 5</strong> <code>metadata.namespace</code>" in page
    assert "the namespace nowhere is not on the hub" in page
    assert not digest_in(page)
    assert not Resource.objects.filter(name="other").exists()


def test_the_page_and_rest_have_the_same_difference(operator: Client) -> None:
    text = text_of(placement_document("web", pick_n_spec(1)), SETTINGS)

    page = preview(operator, text)
    answer = operator.post(
        "/api/v1/apply?dryRun=All", text, content_type="application/yaml"
    )

    added = {
        line[1:].strip()
        for change in answer.json()["changes"]
        for line in change["diff"].splitlines()
        if re.match(r"\+[^+]", line)
    }
    shown = page.partition('id="apply-preview"')[2]
    came = re.findall(r'<td class="came"><code>(.*?)</code>', shown)
    assert {re.sub("<[^>]*>", "", line).strip() for line in came} == added
    assert {"color: blue", "numberOfClusters: 1"} <= added


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Required value"),
        ("---\n", "Empty manifest"),
        (
            dump_yaml(member_document("palemoth")) + "---\nkind: Pod\n",
            "<code>apiVersion</code>",
        ),
    ],
)
def test_what_cannot_be_applied_says_why(
    operator: Client, text: str, words: str
) -> None:
    answer = operator.post(APPLY, {"manifest": text})

    assert answer.status_code == 422
    assert words in page_text(answer)
    assert not digest_in(page_text(answer))


def test_what_was_written_before_an_error_is_listed(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        results = [apply_pages.Result("placement", "web", "changed")]
        raise apply_pages.PartlyApplied(OSError("disk full"), results, total=2)

    monkeypatch.setattr(apply_pages, "apply_documents", stop)

    answer = operator.post(APPLY, {"manifest": text_of(SETTINGS), "previewed": "any"})

    page = page_text(answer)
    assert answer.status_code == 409
    assert "1 of 2 documents are applied" in page
    assert page.count('<th scope="row">') == 1


def test_unscheduling_everything_is_previewed_and_needs_a_confirmation(
    operator: Client,
) -> None:
    spec = pick_n_spec(2)
    term = {"labelSelector": {"matchLabels": {"region": "moon"}}}
    spec["policy"]["affinity"] = {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [term]
            }
        }
    }
    text = text_of(placement_document("web", spec))
    page = preview(operator, text)
    sent = {"manifest": text, "previewed": digest_in(page)}

    refused = operator.post(APPLY, sent)
    done = operator.post(APPLY, {**sent, "confirm": "unschedule-everything"})

    assert objects_in(page) == [("Would be changed", "ClusterResourcePlacement web")]
    assert "This removes the placement from all clusters" in page
    assert (refused.status_code, done.status_code) == (409, 200)
    assert Placement.objects.get().revision == 2
