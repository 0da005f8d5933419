"""What the small shop looks like in every output, to the letter; and the documents against their documentation.

``TIGHTSHIP_UPDATE_GOLDEN=1`` writes the files anew.
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

from hpa_scaler.documents import EXPLANATION, PLAN, FloorExplanation, FloorPlan
from tightship.documents.formats import formats_of
from tightship.documents.terminal import Terminal

SCHEMAS = Path(__file__).resolve().parents[3] / "docs" / "schemas"
UPDATE = bool(os.environ.get("TIGHTSHIP_UPDATE_GOLDEN"))
EXPLAINED = ("web", "shop/pay", "batch", "typo", "plain")

CASES = {
    "plan.table.txt": ("plan",),
    "plan.wide.txt": ("plan", "-o", "wide"),
    "plan.json": ("plan", "-o", "json"),
    "explain.txt": ("explain", *EXPLAINED),
    "explain.json": ("explain", *EXPLAINED, "-o", "json"),
}


@pytest.fixture(autouse=True)
def _beside_the_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documents name the files as they were given."""
    monkeypatch.chdir(data)


def table(plan: FloorPlan, terminal: Terminal) -> str:
    return str(formats_of(PLAN)["table"].render(plan, PLAN, terminal))


def explained(document: FloorExplanation, terminal: Terminal) -> str:
    return str(formats_of(EXPLANATION)["table"].render(document, EXPLANATION, terminal))


def golden(data: Path, name: str, text: str) -> None:
    path = data / "golden" / name
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_an_output_is_as_checked_in(name: str, cli: Any, data: Path) -> None:
    ended = cli(*CASES[name], "-f", "shop.yaml", "--outcomes", "outcomes.json")
    assert (ended.code, ended.err) == (0, "")
    golden(data, name, ended.out)


@pytest.mark.parametrize("width", [60, 80, 120, 150])
def test_a_table_fits_its_terminal(width: int, data: Path) -> None:
    plan = msgspec.json.decode((data / "golden" / "plan.json").read_bytes(), type=FloorPlan)
    text = table(plan, Terminal(width=width))
    assert max(map(len, text.splitlines())) <= width
    golden(data, f"plan.{width}.txt", text)


@pytest.mark.parametrize("width", [60, 80])
def test_an_explanation_fits_its_terminal_but_for_what_can_not_be_broken(width: int, data: Path) -> None:
    document = msgspec.json.decode((data / "golden" / "explain.json").read_bytes(), type=FloorExplanation)
    text = explained(document, Terminal(width=width))
    long = [line for line in text.splitlines() if len(line) > width]
    assert all(" " not in line.strip() for line in long)


def test_without_unicode_a_table_is_ascii(data: Path) -> None:
    plan = msgspec.json.decode((data / "golden" / "plan.json").read_bytes(), type=FloorPlan)
    for name in ("table", "wide"):
        assert str(formats_of(PLAN)[name].render(plan, PLAN, Terminal(width=60, unicode=False))).isascii()
    document = msgspec.json.decode((data / "golden" / "explain.json").read_bytes(), type=FloorExplanation)
    assert explained(document, Terminal(unicode=False)).isascii()


def test_colours_are_only_paint(data: Path) -> None:
    plan = msgspec.json.decode((data / "golden" / "plan.json").read_bytes(), type=FloorPlan)
    painted = table(plan, Terminal(colour=True))
    assert "\x1b[" in painted
    plain = re.sub(r"\x1b\[[0-9;]*m", "", painted)
    assert [line.rstrip() for line in plain.splitlines()] == table(plan, Terminal()).splitlines()


@pytest.mark.parametrize("what", ["plan", "explain"])
def test_yaml_and_json_hold_the_same(what: str, cli: Any, data: Path) -> None:
    printed = cli(*CASES[f"{what}.json"][:-1], "yaml", "-f", "shop.yaml", "--outcomes", "outcomes.json").out
    assert printed.startswith("kind: ")
    # In this order, too.
    assert json.dumps(yaml.safe_load(printed)) == json.dumps(
        json.loads((data / "golden" / f"{what}.json").read_bytes())
    )


@pytest.mark.parametrize(("what", "of"), [("plan", FloorPlan), ("explain", FloorExplanation)])
def test_a_document_is_valid_by_its_schema_and_reads_back(what: str, of: Any, data: Path) -> None:
    raw = (data / "golden" / f"{what}.json").read_bytes()
    document = json.loads(raw)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{of.__name__}.json").read_text()))
    assert json.loads(msgspec.json.encode(msgspec.json.decode(raw, type=of))) == document
    assert (document["apiVersion"], document["kind"]) == ("tightship.dev/v1", of.__name__)
