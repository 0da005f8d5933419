"""Advice as a document has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tightship.advice.model import Advice, Bundle, Freed, Gain
from tightship.documents.advice import AdviceEntry, AdviceSummary, BundleMove, ChangeEntry, GainEntry, NodeBundle
from tightship.objects.reasons import Refusal
from tightship.planning.changes import Change, Tunable


def advice_summary(advice: Advice, tunable: Tunable, seconds: float, *, priced: bool) -> AdviceSummary:
    """Return *advice*, for which there were *seconds*, for a document; *priced* says whether nodes have prices."""
    return AdviceSummary(
        seconds=seconds,
        tried=advice.tried,
        untried=advice.untried,
        changes=tuple(advice_entry(each, tunable, priced=priced) for each in advice.bundles),
        together=None if advice.together is None else advice_entry(advice.together, tunable, priced=priced),
        together_of=advice.numbers,
        others=advice.others,
    )


def node_bundle(freed: Freed, tunable: Tunable, *, priced: bool) -> NodeBundle:
    """Return what frees one node for a document."""
    bundle = freed.bundle
    return NodeBundle(
        advice=advice_entry(bundle, tunable, priced=priced) if bundle is not None and bundle.changes else None,
        round=freed.round,
        moves=tuple(sorted((BundleMove(each.pod.key, each.target) for each in freed.moves), key=lambda each: each.pod)),
        remains=tuple(_remains(freed.remains)),
        late=freed.late,
    )


def _remains(left: Iterable[Refusal]) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = {}
    for each in left:
        alike.setdefault((each.reason, each.fix or each.detail), []).append(each.subject)
    for (reason, what), subjects in alike.items():
        more = f" and {len(subjects) - 1:,} more" if len(subjects) > 1 else ""
        yield f"{reason} {subjects[0]}{more}: {what}"


def gain_entry(gain: Gain, *, priced: bool) -> GainEntry:
    """Return *gain* for a document."""
    return GainEntry(gain.nodes, gain.micros if priced else None)


def advice_entry(bundle: Bundle, tunable: Tunable, *, priced: bool) -> AdviceEntry:
    """Return *bundle* for a document; *priced* says whether nodes have prices."""
    changed = difference(tunable.values(tunable.settings), tunable.values(bundle.settings))
    winning = tunable.winning(changed)
    flags = "the flag wins" if len(winning) == 1 else "flags win"
    but = f"  # only without {' and '.join(winning)}: {flags}" if winning else ""
    tuned = [each for each in bundle.changes if each.tune is not None]
    return AdviceEntry(
        gain=gain_entry(bundle.gain, priced=priced),
        changes=tuple(ChangeEntry(each.reason.value, each.thing, each.note or None) for each in bundle.changes),
        commands=tuple(command for each in bundle.changes for command in each.commands),
        values=f"config: {msgspec.json.encode(changed).decode()}{but}" if changed else None,
        flags=_flags(tuned),
        freed=bundle.freed,
        measured_by=bundle.measured,
        instead_of=bundle.instead_of or None,
    )


def _flags(tuned: Iterable[Change]) -> tuple[str, ...]:
    every = [each.flags for each in tuned]
    return tuple(dict.fromkeys(flag for flags in every for flag in flags)) if all(every) else ()


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of *after* differs from *before*, as far down as both are mappings; a new mapping has no nulls."""
    found: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if value == old:
            continue
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(old, Mapping):
            found[key] = difference(old, value)
        else:
            found[key] = {name: each for name, each in value.items() if each is not None}
    return found
