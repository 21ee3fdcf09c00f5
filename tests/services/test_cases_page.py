"""The reference of the case format shows the real answer of the command."""

import json
import re
from pathlib import Path

from tests.services.simulate_runs import simulate

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "cases.md"


def test_the_case_of_the_page_gets_the_answer_of_the_page(tmp_path: Path) -> None:
    case, answer = map(
        json.loads, re.findall(r"^```\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    )
    lines = tmp_path / "case.jsonl"
    lines.write_text(json.dumps(case), encoding="utf-8")

    run = simulate("--cases", lines)

    assert json.loads(run.output) == answer
