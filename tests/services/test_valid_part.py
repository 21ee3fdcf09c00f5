"""What a preview uses of a text that is being typed."""

import pytest

from fleetui.apimachinery.yaml import dump_yaml
from placements.services.editor.validation import PlacementDraft
from tests.rows import pick_n_spec, placement_document


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
