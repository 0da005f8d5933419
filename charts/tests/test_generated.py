"""What is generated is what it would be if it were generated now, and people can rely on what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tightship.objects.times import DurationError, parse_duration
from tightship_charts.__main__ import drifted, generated
from tightship_charts.configuration import DURATION
from tightship_charts.places import CHARTS, CONTROLLERS, INSTALLABLE
from tightship_charts.schema import schema_of
from tightship_charts.values import defaults

DOCS = CHARTS.parent / "docs"
REPOSITORY = "https://github.com/tightship/tightship/blob/main/"
LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)")


def test_what_is_generated_is_up_to_date() -> None:
    assert [str(path.relative_to(CHARTS.parent)) for path in drifted()] == [], "make charts"


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_defaults_meet_their_schema_and_an_unknown_key_does_not(chart: str) -> None:
    schema = schema_of(chart)
    assert schema["$schema"].endswith("draft-07/schema#")
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(defaults(chart), schema)
    with pytest.raises(jsonschema.ValidationError, match="'nonsense' does not match"):
        jsonschema.validate({**defaults(chart), "nonsense": 1}, schema)
    jsonschema.validate({**defaults(chart), "x-common": ["whatever an anchor is put on"]}, schema)


def texts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema of each text that templates write into a line, by its path; what is below a free map they quote."""
    if "string" in schema.get("type", ()):
        yield path, schema
    named = schema.get("additionalProperties") or {}
    inner = named if isinstance(named, dict) else {}
    for key, each in {**schema.get("properties", {}), **inner.get("properties", {})}.items():
        yield from texts(each, f"{path}.{key}")


@pytest.mark.parametrize("chart", INSTALLABLE)
def test_no_text_can_bring_a_second_line_with_keys_of_its_own(chart: str) -> None:
    found = {path: each for path, each in texts(schema_of(chart)) if not path.startswith(".config.")}
    assert {".global.imageRegistry", ".grafanaDashboard.folder"} <= set(found)
    bad = "info\nhostNetwork: true"
    assert [path for path, each in found.items() if jsonschema.Draft7Validator(each).is_valid(bad)] == []


@pytest.mark.parametrize("chart", CONTROLLERS)
@pytest.mark.parametrize("values", [{"global": {"of": "others"}}, {"enabled": True}, {"tightship-lib": {"global": {}}}])
def test_what_helm_puts_into_a_parts_values_is_allowed(chart: str, values: dict[str, object]) -> None:
    jsonschema.validate({**defaults(chart), **values}, schema_of(chart))


@pytest.mark.parametrize(
    "text", ["0", "90", "90s", "1h30m", "1.5m", "250ms", "1d", "", "s", "90x", "1h 30m", "-1s", "1e3"]
)
def test_the_schemas_durations_are_those_of_the_controllers(text: str) -> None:
    try:
        parse_duration(text)
        good = True
    except DurationError:
        good = False
    assert bool(re.search(DURATION, text)) is good


def test_links_of_a_readme_lead_somewhere() -> None:
    pages = [path for path, _ in generated() if path.suffix == ".md"]
    assert len(pages) > len(INSTALLABLE)
    for path in pages:
        for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
            ours = target.removeprefix(REPOSITORY)
            if "://" in ours:
                continue
            page = CHARTS.parent / ours if ours != target else (path.parent / target).resolve() if target else path
            assert page.exists(), f"{path}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
                assert anchor[1:] in slugs, f"{path}: {target}{anchor}"
