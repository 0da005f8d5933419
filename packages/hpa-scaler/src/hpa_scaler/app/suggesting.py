"""``suggest``: values for annotations, fitted to the recorded past, as commands to paste."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from hpa_scaler.app.commands import CommandSettings
from hpa_scaler.app.fleet import Say
from hpa_scaler.app.past import load
from hpa_scaler.decide.suggest import Suggestion, suggest
from hpa_scaler.decide.variants import Lived, Variant, World
from hpa_scaler.spec.annotations import name_of
from tightship.core.times import rfc3339

_TODAY = Variant("today", "today")
_WEEK = 168.0


async def suggested(
    arguments: argparse.Namespace, configured: CommandSettings, say: Say
) -> tuple[str, tuple[str, ...]]:
    """Return the suggestions that *arguments* ask for, as text, and warnings. Raises as ``backtest`` does."""
    loaded = await load(arguments, configured, [_TODAY], say)
    lines: list[str] = []
    for past in loaded.pasts:
        say(f"fitting {past.hpa.key}")
        lines += _told(suggest(past, loaded.world, _TODAY, say), loaded.world, configured.rules.prefix)
    return "\n".join(lines) + "\n", loaded.warnings


def _told(found: Suggestion, world: World, prefix: str) -> Iterator[str]:
    hpa = found.past.hpa
    if not found.advice:
        yield f"{hpa.key}: can't tell: {found.why}"
        return
    yield f"{hpa.key}: {found.fit.sure}"
    for each in found.advice:
        yield f"  {each.name}: {each.text or 'leave it out'}   ({each.why})"
    for label, lived in (("before", found.before), ("after", found.after)):
        if lived is not None:
            yield f"  {label}: {_lived(lived, world)}"
    settings = [
        f"{name_of(prefix, each.name)}={each.text}" if each.text is not None else f"{name_of(prefix, each.name)}-"
        for each in found.advice
    ]
    words = ["kubectl", "-n", hpa.namespace, "annotate", "--overwrite", "hpa", hpa.name, *settings]
    yield f"  {shlex.join(words)}"


def _lived(lived: Lived, world: World) -> str:
    hours = lived.replicas / 3600 / max(world.count * world.interval / 3600, 1e-9) * _WEEK
    told = f"{hours:,.0f} replica-hours a week, {lived.short / 60:,.0f} minutes short of replicas"
    if lived.worst is None:
        return told
    return f"{told}; worst: {lived.worst.ready} for {lived.worst.need:.1f} at {rfc3339(lived.worst.at)}"
