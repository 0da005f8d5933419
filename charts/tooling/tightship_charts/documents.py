"""``docs/schemas/``: the JSON schema of each document, with what ``documents.yaml`` says of its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpa_scaler.backtest.fit import FloorSuggestions
from hpa_scaler.backtest.replay import FloorBacktest
from hpa_scaler.documents.document import FloorExplanation, FloorPlan
from tightship.documents.document import NodeExplanation, NodePlan
from tightship.documents.frontier import NodeFrontier
from tightship.fit.view import FitDocument
from tightship_charts.places import CHARTS
from tightship_cli.fleet.document import FleetPlan
from tightship_cli.lint.views import LintReport

SCHEMAS = CHARTS.parent / "docs" / "schemas"
DOCUMENTS = (
    FleetPlan,
    LintReport,
    NodePlan,
    NodeExplanation,
    NodeFrontier,
    FitDocument,
    FloorPlan,
    FloorExplanation,
    FloorBacktest,
    FloorSuggestions,
)

_SITE = "https://tightship.github.io/tightship/schemas"


def schemas() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the file and the schema of each document; KeyError where a text is about a key that no document has."""
    texts: Mapping[str, Mapping[str, str]] = yaml.safe_load(
        (CHARTS / "tooling" / "documents.yaml").read_text(encoding="utf-8")
    )
    made = {document.__name__: msgspec.json.schema(document) for document in DOCUMENTS}
    for struct, keys in texts.items():
        found = [schema["$defs"][struct] for schema in made.values() if struct in schema["$defs"]]
        for each in found or [{"properties": {}}]:
            for key, text in keys.items():
                each["properties"][key]["description"] = text
    for name, schema in made.items():
        for each in schema["$defs"].values():
            if "description" in each:
                each["description"] = _plain(each["description"])
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{_SITE}/{name}.json"}
        yield SCHEMAS / f"{name}.json", {**head, **schema}


def _plain(docstring: str) -> str:
    """Return a docstring of a struct as one paragraph that names keys as the document does."""
    text = " ".join(docstring.split()).replace("``", "`")
    camel = re.compile(r"_([a-z])")
    return re.sub(r"\*([a-z_]+)\*", lambda found: f"`{camel.sub(lambda x: x[1].upper(), found[1])}`", text)


__all__ = ["DOCUMENTS", "SCHEMAS", "schemas"]
