"""Names whose addresses belong to a page or to another REST path are refused at every entry point."""

from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Draft, Placement
from tests.commands import call_command
from tests.rows import (
    all_joined,
    member_document,
    person,
    pick_n_spec,
    placement_document,
)

pytestmark = pytest.mark.django_db
PLACEMENT_ERROR = "is a reserved name (reserved: new, preview)"
CLUSTER_ERROR = "import is a reserved name (reserved: bulk, import, new)"


@pytest.fixture
def api() -> APIClient:
    """Return a client of the REST API for an operator."""
    client = APIClient()
    client.force_authenticate(person("ann", "operator"))
    return client


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["new", "preview"])
def test_the_editor_refuses_a_placement_in_form_yaml_and_review(
    operator: Client, name: str
) -> None:
    all_joined("a")
    text = dump_yaml(placement_document(name, pick_n_spec(1)))

    operator.post("/placements/new/", {"mode": "yaml", "manifest": text})
    address = f"/drafts/{Draft.objects.get().pk}/"
    form = operator.get(address).content.decode()
    answers = [
        form,
        *(
            operator.get(address + more).content.decode()
            for more in ("?as=yaml", "review/")
        ),
    ]

    assert [answer.count(f"{name} {PLACEMENT_ERROR}") for answer in answers] == [
        1,
        1,
        1,
    ]
    assert 'name="digest"' not in answers[-1]
    assert (
        'id="notes-metadata-name"'
        in form.partition(PLACEMENT_ERROR)[0].rpartition("<span")[0]
    )


@pytest.mark.parametrize("name", ["new", "preview"])
def test_rest_refuses_a_placement(api: APIClient, name: str) -> None:
    document = placement_document(name, pick_n_spec(1))

    answers: list[Any] = [
        api.post("/api/v1/placements/preview", document, format="json"),
        api.post("/api/v1/apply", document, format="json"),
    ]
    if name == "new":  # the other name has no address of its own
        answers.append(api.put(f"/api/v1/placements/{name}", document, format="json"))

    assert {answer.status_code for answer in answers} == {422}
    assert all(PLACEMENT_ERROR in answer.content.decode() for answer in answers)
    assert not Placement.objects.exists()


def test_the_command_refuses_both(tmp_path: Any) -> None:
    for document, error in (
        (placement_document("new", pick_n_spec(1)), PLACEMENT_ERROR),
        (member_document("import"), CLUSTER_ERROR),
    ):
        path = tmp_path / "manifest.yaml"
        path.write_text(dump_yaml(document))

        with pytest.raises(CommandError) as refused:
            call_command("apply", "-f", str(path))

        assert error in str(refused.value)


def test_rest_and_the_import_page_refuse_a_cluster(
    api: APIClient, operator: Client
) -> None:
    document = member_document("import")

    put = api.put("/api/v1/clusters/import", document, format="json")
    preview = operator.post(
        "/clusters/import/", {"text": dump_yaml(document), "do": "preview"}
    )

    assert put.status_code == 422
    assert CLUSTER_ERROR in put.content.decode()
    assert CLUSTER_ERROR in preview.content.decode()
    assert not MemberCluster.objects.exists()
