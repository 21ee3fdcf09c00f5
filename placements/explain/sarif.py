"""Results of checks as SARIF 2.1.0, which code hosts show at the lines of files."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class SarifResult:
    """What a rule found; `level` is note, warning or error, `file` is empty where no file is at fault."""

    rule: str
    level: str
    message: str
    file: str = ""
    line: int = 1


def sarif_text(
    results: Iterable[SarifResult], titles: Mapping[str, str], *, version: str
) -> str:
    """Return a document with the rules that found something; `titles` has what is known about rules."""
    several = list(results)
    rules = list(dict.fromkeys(result.rule for result in several))
    descriptions = [
        {"id": rule}
        | ({"shortDescription": {"text": titles[rule]}} if rule in titles else {})
        for rule in rules
    ]
    run = {
        "tool": {
            "driver": {"name": "FleetUI", "version": version, "rules": descriptions}
        },
        "results": [_result_document(result, rules) for result in several],
    }
    return (
        json.dumps({"version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2)
        + "\n"
    )


def _result_document(one: SarifResult, rules: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": one.rule,
        "ruleIndex": rules.index(one.rule),
        "level": one.level,
        "message": {"text": one.message},
    }
    if one.file:
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(one.file)},
                    "region": {"startLine": one.line},
                }
            }
        ]
    return result
