"""What the small cluster looks like in every output, to the letter; and the documents against their documentation.

``TIGHTSHIP_UPDATE_GOLDEN=1`` writes the files anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from tightship.documents.document import NodeExplanation, NodePlan

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"
UPDATE = bool(os.environ.get("TIGHTSHIP_UPDATE_GOLDEN"))
EXPLAINED = ("web-1", "web-2", "web-4", "gpu-1", "batch-1")

CASES = {
    "plan.table.txt": ("plan",),
    "plan.possible.txt": ("plan", "--placement", "possible"),
    "plan.wide.txt": ("plan", "-o", "wide"),
    "plan.json": ("plan", "-o", "json"),
    "explain.txt": ("explain", *EXPLAINED),
    "explain.json": ("explain", *EXPLAINED, "-o", "json"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_output_is_as_checked_in(name: str, cli: Any, data: Path) -> None:
    outcome = cli(*CASES[name], "-f", data / "cluster.yaml")
    assert outcome.code == 0
    assert outcome.err == ""
    golden = data / name
    if UPDATE:
        golden.write_text(outcome.out, encoding="utf-8")
    assert outcome.out == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["plan", "explain"])
def test_yaml_and_json_hold_the_same(what: str, cli: Any, data: Path) -> None:
    printed = cli(*CASES[f"{what}.json"][:-1], "yaml", "-f", data / "cluster.yaml").out
    assert printed.startswith("kind: ")
    # In this order, too.
    assert json.dumps(yaml.safe_load(printed)) == json.dumps(json.loads((data / f"{what}.json").read_bytes()))


@pytest.mark.parametrize(("what", "of"), [("plan", NodePlan), ("explain", NodeExplanation)])
def test_a_document_is_valid_by_its_schema_and_reads_back(what: str, of: Any, data: Path) -> None:
    raw = (data / f"{what}.json").read_bytes()
    document = json.loads(raw)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{of.__name__}.json").read_text()))
    assert json.loads(msgspec.json.encode(msgspec.json.decode(raw, type=of))) == document
    assert document["apiVersion"] == "tightship.dev/v1"
    assert document["kind"] == of.__name__
