"""Overrides that reach Secrets: their values are hidden, their paths and keys are not."""

from typing import Any

import pytest

from fleetui.apimachinery.secrets import HIDDEN, HIDDEN_AND_CHANGED, without_secrets
from tests.services.rollouts.overrides import (
    SHOP,
    WEB,
    annotate,
    for_clusters,
    for_resource,
    leaving_out,
    rule,
)

SECRET = {"group": "", "version": "v1", "kind": "Secret", "name": "api-key"}
COPY = "kubectl.kubernetes.io/last-applied-configuration"


def put(path: str, value: Any, op: str = "add") -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def shown(
    *patches: dict[str, Any], before: tuple[dict[str, Any], ...] | None = None
) -> list[Any]:
    """Return the values that stay of the patches to a Secret."""
    document = for_resource("api-key", rule(*patches), of=SECRET)
    older = (
        None if before is None else for_resource("api-key", rule(*before), of=SECRET)
    )
    [one] = without_secrets(document, older)["spec"]["policy"]["overrideRules"]
    return [patch.get("value") for patch in one["jsonPatchOverrides"]]


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_hides_one_value_and_a_whole_field_with_its_keys_to_be_seen(field: str) -> None:
    patches = (
        put(f"/{field}/password", "hush"),
        put(f"/{field}", {"password": "hush"}, "replace"),
    )

    assert shown(*patches) == [HIDDEN, {"password": HIDDEN}]


@pytest.mark.parametrize("value", ["hush", ["hush"], 5, None])
def test_hides_what_is_no_mapping(value: Any) -> None:
    assert shown(put("/data", value)) == [HIDDEN]


def test_hides_the_copy_of_the_whole_and_leaves_other_annotations() -> None:
    path = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"

    assert shown(put(path, "hush"), annotate(**{COPY: "hush", "by": "us"})) == [
        HIDDEN,
        {COPY: HIDDEN, "by": "us"},
    ]


def test_leaves_labels_removals_and_rules_that_delete() -> None:
    document = for_resource(
        "api-key", rule({"op": "remove", "path": "/data/a"}), leaving_out(), of=SECRET
    )

    assert shown(put("/metadata/labels/tier", "edge")) == ["edge"]
    assert without_secrets(document) == document


def test_says_which_value_changed() -> None:
    before = (
        put("/data/a", "old"),
        put("/data/b", "same"),
        put("/data", {"c": "old", "d": "same"}),
    )
    after = (
        put("/data/a", "new"),
        put("/data/b", "same"),
        put("/data", {"c": "new", "d": "same"}),
    )

    assert shown(*after, before=before) == [
        HIDDEN_AND_CHANGED,
        HIDDEN,
        {"c": HIDDEN_AND_CHANGED, "d": HIDDEN},
    ]
    assert shown(put("/data/z", "new"), before=before[:1]) == [HIDDEN]


def test_an_override_of_a_namespace_reaches_the_secrets_in_it() -> None:
    document = for_clusters("shop", rule(put("/data/password", "hush")), of=SHOP)

    assert "hush" not in str(without_secrets(document))


def test_hides_the_copy_that_kubectl_keeps_of_the_override() -> None:
    document = for_resource("api-key", rule(put("/data/a", "hush")), of=SECRET)
    document["metadata"]["annotations"] = {COPY: "hush", "by": "us"}

    assert without_secrets(document)["metadata"]["annotations"] == {
        COPY: HIDDEN,
        "by": "us",
    }


@pytest.mark.parametrize(
    "document", [for_resource("web", rule(put("/data/a", "b")), of=WEB), {}, 5, None]
)
def test_anything_else_comes_back_as_it_is(document: Any) -> None:
    assert without_secrets(document) == document


@pytest.mark.parametrize(
    "spec", [None, [], {"resourceSelectors": 5}, {"resourceSelectors": [SECRET]}]
)
def test_takes_what_is_no_override_yet(spec: Any) -> None:
    without_secrets({"kind": "ResourceOverride", "spec": spec})
