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

from tightship.documents.document import ExcessSummary, NodeExplanation, NodePlan

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).parent / "data"
UPDATE = bool(os.environ.get("TIGHTSHIP_UPDATE_GOLDEN"))
EXPLAINED = ("web-5", "web-4", "web-2", "gpu-1", "batch-1")

CASES = {
    "plan.table.txt": ("plan",),
    "plan.held.txt": ("plan", "--threshold", "5", "--min-nodes", "8", "--placement", "possible"),
    "plan.json": ("plan", "-o", "json"),
    "explain.txt": ("explain", *EXPLAINED),
    "explain.json": ("explain", *EXPLAINED, "-o", "json"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_output_is_as_checked_in(name: str, cli: Any, cluster: Path) -> None:
    outcome = cli(*CASES[name], "-f", cluster)
    assert outcome.code == 0
    assert outcome.err == ""
    golden = DATA / name
    if UPDATE:
        golden.write_text(outcome.out, encoding="utf-8")
    assert outcome.out == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("what", ["plan", "explain"])
def test_yaml_and_json_hold_the_same(what: str, cli: Any, cluster: Path) -> None:
    printed = cli(*CASES[f"{what}.json"][:-1], "yaml", "-f", cluster).out
    assert printed.startswith("kind: ")
    # In this order, too.
    assert json.dumps(yaml.safe_load(printed)) == json.dumps(json.loads((DATA / f"{what}.json").read_bytes()))


@pytest.mark.parametrize(("what", "of"), [("plan", NodePlan), ("explain", NodeExplanation)])
def test_a_document_is_valid_by_its_schema_and_reads_back(what: str, of: Any) -> None:
    raw = (DATA / f"{what}.json").read_bytes()
    document = json.loads(raw)
    jsonschema.validate(document, msgspec.json.schema(of))
    assert json.loads(msgspec.json.encode(msgspec.json.decode(raw, type=of))) == document
    assert document["generator"]["name"] == "node-refiner"


def test_the_figures_are_documented_and_those_of_the_plan(cluster: Path) -> None:
    document = json.loads((DATA / "plan.json").read_text())
    figures = document["summary"]["excess"]
    assert set(figures) == {msgspec.structs.fields(ExcessSummary)[n].encode_name for n in range(len(figures))}
    assert figures["nodes"] == min(figures["cpu"], figures["memory"])
    counted = [
        node
        for node in document["nodes"]
        if not {"Tainted", "Cordoned", "NotReady", "DrainInProgress"} & set(node["reasons"])
    ]
    assert figures["countedNodes"] == len(counted)
    # The pod of batch-1, which somebody else cordoned, will run on one of the counted nodes.
    for part, more in (("cpuMilli", 500), ("memoryBytes", 2**30)):
        assert figures[part]["allocatable"] == sum(node[part]["allocatable"] for node in counted)
        assert figures[part]["requested"] == sum(node[part]["requested"] for node in counted) + more
    candidate = next(node for node in document["nodes"] if node["name"] == figures["candidate"])
    assert candidate["order"] == 1
    left = figures["cpuMilli"]["allocatable"] - figures["cpuMilli"]["requested"]
    assert figures["cpu"] == round(left / candidate["cpuMilli"]["allocatable"], 4)


def test_a_plan_of_the_compactor_has_no_such_figures() -> None:
    compactors = ROOT / "packages" / "node-compactor" / "tests" / "data" / "plan.json"
    assert "excess" not in json.loads(compactors.read_text())["summary"]
