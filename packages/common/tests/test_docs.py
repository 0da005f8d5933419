"""``docs/reasons.md`` holds every reason, and nothing that is none; links lead somewhere, and to every page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tightship.objects.reasons import Reason
from tightship.planning.demand import SWITCHABLE as DEMAND_RULES
from tightship.rules.evictability import SWITCHABLE as POD_RULES
from tightship.rules.nodes import SWITCHABLE as NODE_RULES

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
REASONS = (DOCS / "reasons.md").read_text()
REPOSITORY = "https://github.com/tightship/tightship/blob/main/"
TEXTS = yaml.safe_load((ROOT / "charts" / "tooling" / "reasons.yaml").read_text())
SWITCHABLE = NODE_RULES | POD_RULES | DEMAND_RULES


def sections() -> dict[str, str]:
    """The text under each third-level heading."""
    parts = re.split(r"^### (.+)$", REASONS, flags=re.MULTILINE)
    bodies = [re.split(r"^## ", body, flags=re.MULTILINE)[0] for body in parts[2::2]]
    return dict(zip(parts[1::2], bodies, strict=True))


def test_every_reason_has_its_heading_in_the_order_of_the_enum() -> None:
    assert re.findall(r"^### (.+)$", REASONS, flags=re.MULTILINE) == [str(reason) for reason in Reason]


def test_a_reason_says_what_to_do_and_whether_its_rule_can_be_switched_off() -> None:
    found = sections()
    assert {each for each in Reason if "* Do: " in found[each]} == {
        each for each in Reason if TEXTS[each]["do"] != "Nothing."
    }
    assert {each for each in Reason if "* Switchable" in found[each]} == SWITCHABLE


def test_the_groups_are_those_of_the_enum() -> None:
    source = (ROOT / "packages/common/src/tightship/objects/reasons.py").read_text()
    groups = re.findall(r"^    # (.+)\.$", source, flags=re.MULTILINE)
    assert re.findall(r"^## (.+)$", REASONS, flags=re.MULTILINE) == groups


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))], ids=lambda page: f"{page.parent.name}/{page.name}"
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in target and not target.startswith(REPOSITORY):
            continue
        name, _, anchor = target.partition("#")
        # The site has only docs/: what is elsewhere in the repository has an address there.
        other = page if not name else ROOT / name.removeprefix(REPOSITORY) if "://" in name else page.parent / name
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target


def leaves(tree: object) -> Iterator[str]:
    """The pages in a part of the site's navigation."""
    if isinstance(tree, str):
        yield tree
    else:
        for each in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            yield from leaves(each)


def test_the_site_and_its_first_page_lead_to_every_page() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    pages = sorted(each.name for each in DOCS.glob("*.md"))
    assert sorted(leaves(project["nav"])) == pages, "add the page to nav in zensical.toml"
    linked = set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "README.md").read_text()))
    assert set(pages) - linked == {"README.md"}, "add the page to docs/README.md"


def test_every_claim_of_the_comparison_names_its_source() -> None:
    rows = re.findall(r"^\| (?:better|the same|here) \|.*$", (DOCS / "comparison.md").read_text(), flags=re.MULTILINE)
    assert len(rows) > 20
    for row in rows:
        assert "](" in row.removesuffix(" |").rpartition(" | ")[2], row


def test_the_readme_is_read_in_a_minute_and_its_plan_fits_a_narrow_terminal() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) <= 900
    assert text.count("\n") <= 90
    [shown, *_] = re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert max(map(len, shown.splitlines())) <= 80
    blockers = shown.partition("What keeps the rest")[2]
    assert any(f" {reason} " in blockers for reason in Reason), "the plan shows what keeps nodes"
