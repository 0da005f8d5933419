"""The pages of the hpa-scaler hold every reason, annotation, setting and deviation, and nothing that is none."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hpa_scaler.annotations.parsing import ANNOTATIONS
from hpa_scaler.annotations.spec import MissingDataRule
from hpa_scaler.process.settings import ScalerRunSettings, ScalerSettings
from tightship.objects.reasons import QUERY_FAILURES
from tightship.process.settings.loading import wire_keys
from tightship.process.settings.query_servers import BasicAuth, ServerSettings, TlsSettings
from tightship_testkit.commands import Outcome

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
REASONS = (DOCS / "reasons.md").read_text()
PAGE = (DOCS / "hpa-scaler.md").read_text()
SETTINGS = (DOCS / "settings.md").read_text().partition("# Settings of the hpa-scaler")[2]
MIGRATION = (DOCS / "moving.md").read_text()


def test_the_failures_are_those_of_their_group() -> None:
    group = REASONS.partition("\n## A query has no usable answer\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^### (.+)$", group, flags=re.MULTILINE)) == {str(reason) for reason in QUERY_FAILURES}


def annotation_rows() -> dict[str, str]:
    table = PAGE.partition("| annotation | what | default |")[2].partition("\n\n")[0]
    rows = {}
    for row in table.splitlines():
        for name in re.findall(r"`([a-z./-]+)`", row.split("|")[1] if row.count("|") > 2 else ""):
            rows[name] = row
    return rows


def test_every_annotation_is_documented() -> None:
    rows = annotation_rows()
    assert set(rows) == {"tightship.dev/hpa-scaler", "state", *(each.name for each in ANNOTATIONS)}


def test_every_rule_for_missing_data_is_documented() -> None:
    for rule in MissingDataRule.__args__:
        assert f"| `{rule}" in PAGE


@pytest.mark.parametrize("model", [ScalerSettings, ServerSettings, TlsSettings, BasicAuth])
def test_every_key_of_the_configuration_is_documented(model: type) -> None:
    for key in wire_keys(model).values():
        assert re.search(rf"\b{key}[`.:]", SETTINGS), key


def test_the_variables_of_the_older_controller_and_ours_are_documented() -> None:
    own = [field for field in ScalerRunSettings.__annotations__ if field != "ports"]
    for field in own:
        for name in ScalerRunSettings.variables(field)[:1]:
            assert f"`{name}`" in SETTINGS, name


def test_defaults_are_what_the_page_was_measured_with() -> None:
    settings = ScalerSettings()
    assert (settings.drop_count, settings.drop_share, settings.drop_floor_share, settings.drop_size) == (
        10,
        0.5,
        0.5,
        0.3,
    )
    assert (settings.contest_resets, settings.contest_pause, settings.contest_longest_pause) == (3, 900, 21600)
    assert (settings.circuit_failures, settings.circuit_pause, settings.query_deadline) == (3, 30, 45)
    assert (settings.rollout_limit, settings.longest_guard, settings.writes_per_second) == (1800, 3600, 50)


@pytest.mark.parametrize(
    "word",
    ["NaN", "2147483647", "requests-per-replica", "not even where it equals", "below 0", "below 1", "several series"],
)
def test_a_deviation_is_told_to_those_who_migrate(word: str) -> None:
    assert word in MIGRATION


NIGHTS = {
    "Prometheus is away": ("outage", "2027-01-15T08:45:00Z"),
    "Prometheus is back": ("after-outage", "2027-01-15T08:47:30Z"),
    "The traffic has fallen": ("lowering-window", "2027-01-15T08:41:15Z"),
    "The traffic has risen at once": ("sudden-rise", "2027-01-15T08:38:45Z"),
}


def test_the_four_states_of_the_night_are_as_the_product_explains_them(cli: Callable[..., Outcome]) -> None:
    """``TIGHTSHIP_UPDATE_GOLDEN=1`` writes them anew."""
    folder = Path(__file__).parent / "cases" / "28-3am"
    parts = []
    for title, (name, now) in NIGHTS.items():
        given = ("-f", folder / f"{name}.hpas.json", "--outcomes", folder / f"{name}.outcomes.json", "--now", now)
        ended = cli("explain", "shop/web", *given)
        assert ended.code == 0
        decision = next(line for line in ended.out.splitlines() if line.startswith("  Decision"))
        why = ended.out.partition("\nWhy\n")[2].partition("\n\n")[0]
        parts.append(f"{title}:\n\n```text\n{decision}\n\nWhy\n{why}\n```\n")
    text = "<!-- night -->\n" + "\n".join(parts) + "<!-- day -->"
    if os.environ.get("TIGHTSHIP_UPDATE_GOLDEN"):
        before, after = PAGE.partition("<!-- night -->")[0], PAGE.partition("<!-- day -->")[2]
        (DOCS / "hpa-scaler.md").write_text(before + text + after)
    else:
        assert text in PAGE
