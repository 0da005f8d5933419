"""``docs/reasons.md`` holds every reason, and nothing that is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tightship.core.reasons import NODE_REASONS, Reason
from tightship.planning.demand import SWITCHABLE as DEMAND_RULES
from tightship.planning.evictability import SWITCHABLE as POD_RULES
from tightship.planning.nodes import SWITCHABLE as NODE_RULES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
REASONS = (DOCS / "reasons.md").read_text()
SWITCHABLE = NODE_RULES | POD_RULES | DEMAND_RULES


def sections() -> dict[str, str]:
    """The text under each third-level heading."""
    parts = re.split(r"^### (.+)$", REASONS, flags=re.MULTILINE)
    bodies = [re.split(r"^## ", body, flags=re.MULTILINE)[0] for body in parts[2::2]]
    return dict(zip(parts[1::2], bodies, strict=True))


def test_every_reason_has_its_heading_in_the_order_of_the_enum() -> None:
    assert re.findall(r"^### (.+)$", REASONS, flags=re.MULTILINE) == [str(reason) for reason in Reason]


@pytest.mark.parametrize("reason", sorted(NODE_REASONS))
def test_a_reason_says_who_decides_and_what_to_do(reason: Reason) -> None:
    text = sections()[reason]
    assert "*Decided by* " in text
    assert "*What to do:* " in text


@pytest.mark.parametrize("reason", sorted(NODE_REASONS))
def test_a_reason_says_whether_its_rule_can_be_switched_off(reason: Reason) -> None:
    text = sections()[reason]
    assert (f"*Switch off:* `--disable-rule {reason}`" in text) == (reason in SWITCHABLE)
    assert ("*Can't be switched off:* " in text) == (reason not in SWITCHABLE)


@pytest.mark.parametrize("reason", sorted({*Reason} - NODE_REASONS | {Reason.UNREADABLE}))
def test_a_reason_of_an_hpa_says_what_to_do(reason: Reason) -> None:
    assert "*What to do:* " in sections()[reason]


def test_the_groups_are_those_of_the_enum() -> None:
    source = (ROOT / "packages/common/src/tightship/core/reasons.py").read_text()
    groups = re.findall(r"^    # (.+)\.$", source, flags=re.MULTILINE)
    assert re.findall(r"^## (.+)$", REASONS, flags=re.MULTILINE) == groups


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = page if not name else page.parent / name
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target
