"""What the small cluster looks like in every output, to the letter; and the documents against their documentation.

``TIGHTSHIP_UPDATE_GOLDEN=1`` writes the files, and the example of docs/plan-output.md, anew.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from tightship.documents.document import NodeExplanation, NodePlan

DOCS = Path(__file__).resolve().parents[3] / "docs" / "plan-output.md"
UPDATE = bool(os.environ.get("TIGHTSHIP_UPDATE_GOLDEN"))
EXPLAINED = ("web-1", "web-2", "web-4", "gpu-1", "batch-1")
EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)

CASES = {
    "plan.table.txt": ("plan",),
    "plan.possible.txt": ("plan", "--placement", "possible"),
    "plan.wide.txt": ("plan", "-o", "wide"),
    "plan.json": ("plan", "-o", "json"),
    "plan.yaml": ("plan", "-o", "yaml"),
    "explain.txt": ("explain", *EXPLAINED),
    "explain.json": ("explain", *EXPLAINED, "-o", "json"),
    "explain.yaml": ("explain", *EXPLAINED, "-o", "yaml"),
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
def test_yaml_and_json_hold_the_same(what: str, data: Path) -> None:
    as_json = json.loads((data / f"{what}.json").read_text())
    assert yaml.safe_load((data / f"{what}.yaml").read_text()) == as_json


@pytest.mark.parametrize(("what", "of"), [("plan", NodePlan), ("explain", NodeExplanation)])
def test_a_document_is_valid_by_its_schema_and_reads_back(what: str, of: Any, data: Path) -> None:
    raw = (data / f"{what}.json").read_bytes()
    document = json.loads(raw)
    jsonschema.validate(document, msgspec.json.schema(of))
    assert json.loads(msgspec.json.encode(msgspec.json.decode(raw, type=of))) == document
    assert document["apiVersion"] == "tightship.dev/v1"
    assert document["kind"] == of.__name__


@pytest.mark.parametrize("of", [NodePlan, NodeExplanation])
def test_every_key_of_the_schema_is_documented(of: Any) -> None:
    text = DOCS.read_text()
    words = set(re.findall(r"`\.?([A-Za-z.]+)(?:\[\])?`", text))
    documented = {part for word in words for part in word.split(".")}
    definitions = msgspec.json.schema(of)["$defs"]
    keys = {key for each in definitions.values() for key in each.get("properties", {})}
    assert keys - documented == set()


def test_the_documented_example_is_what_the_command_prints(cli: Any, data: Path) -> None:
    outcome = cli("plan", "-f", data / "tiny.yaml", "-o", "json")
    if UPDATE:
        DOCS.write_text(EXAMPLE.sub(lambda _: f"```json\n{outcome.out}```", DOCS.read_text(), count=1))
    [example] = EXAMPLE.findall(DOCS.read_text())
    assert outcome.out == example
