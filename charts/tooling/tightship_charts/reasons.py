"""``docs/reasons.md``: every reason of the enum, in its groups, with the texts of ``reasons.yaml``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

from tightship.objects.reasons import Reason
from tightship.process.settings.loading import SWITCHABLE_RULES
from tightship_charts.places import CHARTS

REASONS = CHARTS.parent / "docs" / "reasons.md"

_HEAD = """\
<!-- Made by `make charts` from the enum Reason and charts/tooling/reasons.yaml: edit those. -->
# Every reason

Each third-level heading is a word that Tightship prints in plans, Events, metrics, annotations and pages: why a node
stays, or why the floor of an HPA is where it is. A node or an HPA shows all of its reasons. The detail beside each says
which pod, budget, node or server is meant, with numbers, times and the answers of others; `explain` adds the smallest
change that would remove the reason. Where no bullet says what to do, nothing is wrong.

* `--disable-rule WORD` leaves a *switchable* rule out of one plan; `disabledRules: [WORD, ...]` leaves it out for good,
  and you vouch that its case is harmless in your cluster. The other rules stay on: a setting governs them, the API
  server would refuse, or nothing could be judged.
* An annotation on a pod is gone with that pod: to keep a change, make it in the template of the controller.
* `PREFIX` is the prefix of an HPA's annotations, `tightship.dev` unless `ANNOTATION_PREFIX` says otherwise.
"""

_BELOW: Mapping[str, str] = {
    "A PodDisruptionBudget stands against it": """\
Tightship reads what a budget allows from its status: `kubectl describe pdb -n NAMESPACE NAME`. A pending pod needs no
budget. A pod that is not Ready needs no allowance with `unhealthyPodEvictionPolicy: AlwaysAllow`, or if enough other
pods are healthy.
""",
    "A drain under way was given up, or handed to someone else": """\
Only a running controller gives these: in an Event on the node, in `reason` of `tightship.dev/drain`, and in
`tightship_drains_total`. It undoes taint and cordon, and tries again after a growing pause ([Backoff](#backoff)); pods
that have moved stay where they are. Reasons from above appear here too.
""",
    "The HPA is not ours to move": "The controller changes nothing, and what it set before stays.\n",
    "A query has no usable answer": """\
None of these lowers a floor; the ratio and other queries of the HPA may still raise it. [What replaces a missing
answer](hpa-scaler.md#when-a-query-has-no-answer) is up to you.
""",
}
"""What holds for all reasons of a group."""


def reasons() -> str:
    """Return the whole page; every reason has its texts, or a KeyError names the one that has none."""
    return "\n".join([_HEAD, *(line for group, words in groups() for line in _group(group, words))])


def groups() -> Iterator[tuple[str, list[Reason]]]:
    """Yield each comment between the enum's members with the members below."""
    parts = re.split(r"^    # (.+)\.$", inspect.getsource(Reason), flags=re.MULTILINE)[1:]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        yield title, [Reason[name] for name in re.findall(r"^    ([A-Z_]+) = ", body, flags=re.MULTILINE)]


@cache
def texts() -> Mapping[str, Mapping[str, str]]:
    """Return the texts by the word of their reason."""
    path = Path(CHARTS) / "tooling" / "reasons.yaml"
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def _group(title: str, words: list[Reason]) -> Iterator[str]:
    yield f"## {title}\n"
    if title in _BELOW:
        yield _BELOW[title]
    for reason in words:
        text = texts()[reason]
        yield f"### {reason}\n"
        yield f"{text['means']}\n"
        bullets = [f"* Only: {text['only']}"] if "only" in text else []
        if text["do"] != "Nothing.":
            bullets.append(f"* Do: {text['do']}")
        if reason in SWITCHABLE_RULES:
            bullets.append("* Switchable")
        yield from (*bullets, "") if bullets else ()


__all__ = ["REASONS", "groups", "reasons", "texts"]
