"""What a preview uses of a text that is being typed."""

from copy import deepcopy

import pytest

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement
from placements.services.demo.load import load_demo
from placements.services.editor.preview import preview_draft
from placements.services.editor.validation import PlacementDraft
from tests.rows import NOW, pick_n_spec, placement_document


@pytest.mark.parametrize(
    "typed", ["strat", "strategy: [", "strategy: {", "kind: Namespace"]
)
def test_a_line_that_cannot_be_read_is_left_out_wherever_it_is_typed(
    typed: str,
) -> None:
    text = dump_yaml(placement_document("web", pick_n_spec(2)))
    lines, whole, left_out = text.splitlines(), PlacementDraft.parse(text).manifest, 0
    for place in range(1, len(lines)):
        indent = " " * (len(lines[place]) - len(lines[place].lstrip(" -")))
        draft = PlacementDraft.parse(
            "\n".join([*lines[:place], indent + typed, *lines[place:], ""])
        )
        if draft.syntax_errors:
            left_out += 1
            assert (draft.manifest, draft.valid_part) == (None, whole)
            assert draft.left_out[0].startswith("line ")
    assert left_out


@pytest.mark.django_db
def test_the_waves_of_a_text_with_an_error_are_those_without_what_is_left_out() -> None:
    load_demo(4, by=None, now=NOW)
    saved = Placement.objects.filter(placement_type="PickN").earliest("name")
    document = deepcopy(saved.document)
    document["spec"]["policy"]["tolerations"] = [{"operator": "exists"}]

    whole, part = (
        preview_draft(PlacementDraft.parse(dump_yaml(one)), saved=saved, now=NOW)
        for one in (saved.document, document)
    )

    assert part.errors
    assert part.waves
    assert part.waves == whole.waves
