"""A format is one row of ``tightship.documents.formats``, and every command takes its name after ``-o``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hpa_scaler.cli
import hpa_scaler.documents
import node_compactor.controller
import node_refiner.controller
from tightship.documents import formats
from tightship.documents.explanation_view import EXPLANATION
from tightship.documents.plan_view import PLAN
from tightship.documents.presentation import Document, View
from tightship.documents.terminal import Terminal
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

PACKAGES = Path(__file__).resolve().parents[2]
NODES = PACKAGES / "node-compactor" / "tests" / "data" / "cluster.yaml"
FLOORS = PACKAGES / "hpa-scaler" / "tests" / "data"
VIEWS = (PLAN, EXPLANATION, hpa_scaler.documents.PLAN, hpa_scaler.documents.EXPLANATION, hpa_scaler.documents.RELEASE)


def outline(document: Document, view: View[Document], terminal: Terminal) -> str:
    """Return an outline: titles, and how many rows there are below them."""
    printout = view.printout(document)
    titles = "".join(f"# {block.title}\n" for block in printout.blocks if block.title)
    return f"{len(printout.grid.columns[0].cells)} rows\n" if printout.grid else titles


@pytest.fixture
def _outline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", {**formats.FORMATS, "outline": formats.Format(outline)})


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    programs = {
        "node-compactor": node_compactor.controller.COMMANDS.command,
        "node-refiner": node_refiner.controller.COMMANDS.command,
        "hpa-scaler": hpa_scaler.cli.command,
    }
    return lambda name, *given: commands.call(name, programs[name], capfdbinary.readouterr, given)


def test_every_kind_of_document_has_the_formats_that_can_show_it() -> None:
    lines = ["table", "json", "yaml", "markdown"]
    hpas = ["table", "wide", "json", "yaml", "html", "markdown", "csv", "name"]
    nodes = ["table", "summary", *hpas[1:], "patch"]
    assert [list(formats.formats_of(view)) for view in VIEWS] == [nodes, lines, hpas, lines, lines]


@pytest.mark.usefixtures("_outline")
def test_a_row_that_is_added_is_a_format_of_everything_it_can_show() -> None:
    assert {list(formats.formats_of(view))[-1] for view in VIEWS} == {"outline"}


@pytest.mark.usefixtures("_outline")
@pytest.mark.parametrize("name", ["node-compactor", "node-refiner"])
def test_commands_of_controllers_of_nodes_take_it(name: str, run: Callable[..., Outcome]) -> None:
    assert run(name, "plan", "-f", NODES, "-o", "outline").out.endswith(" rows\n")
    explained = run(name, "explain", "web-1", "-f", NODES, "-o", "outline")
    assert (explained.code, explained.out.splitlines()[:2]) == (0, ["# Node web-1", "# Utilization"])


@pytest.mark.usefixtures("_outline")
def test_commands_of_the_hpa_scaler_take_it(run: Callable[..., Outcome]) -> None:
    given = ("-f", FLOORS / "shop.yaml", "--outcomes", FLOORS / "outcomes.json", "-o", "outline")
    assert run("hpa-scaler", "plan", *given).out == "9 rows\n"
    explained = run("hpa-scaler", "explain", "shop/web", *given)
    assert (explained.code, explained.out.splitlines()[:2]) == (0, ["# HPA shop/web", "# Why"])


def test_without_the_row_the_format_does_not_exist(run: Callable[..., Outcome]) -> None:
    refused = run("hpa-scaler", "plan", "-o", "outline")
    assert refused.code == 64
    assert "choose from" in refused.err
