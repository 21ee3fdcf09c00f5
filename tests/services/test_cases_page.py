"""The reference of the case format shows the real answer of the command."""

import json
import re
from pathlib import Path

from placements.services.simulate.cases import run_scenario
from tests.services.simulate_runs import simulate

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "cases.md"


def test_the_case_of_the_page_gets_the_answer_of_the_page(tmp_path: Path) -> None:
    case, answer = map(
        json.loads,
        re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M),
    )
    lines = tmp_path / "case.jsonl"
    lines.write_text(json.dumps(case), encoding="utf-8")

    run = simulate("--cases", lines)

    assert json.loads(run.output) == answer


def test_from_no_policy_to_an_explicit_pick_all_is_a_policy_change_under_kubefleet() -> (
    None
):
    steps = [
        {"policy": None},
        {"policy": None},
        {"policy": {"placementType": "PickAll"}},
    ]
    case = {
        "id": "x",
        "semantics": "kubefleet",
        "clusters": [{"name": "a"}],
        "steps": steps,
    }

    for semantics, expected in (
        ("kubefleet", [["a"], [], ["a"]]),
        ("fleet", [["a"], [], []]),
    ):
        run_steps = run_scenario({**case, "semantics": semantics})
        assert [step["pickedOrder"] for step in run_steps] == expected
