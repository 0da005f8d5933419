"""``suggest``: values for annotations, fitted to the recorded past."""

from __future__ import annotations

import argparse

from hpa_scaler.app.commands import CommandSettings
from hpa_scaler.app.fleet import Say
from hpa_scaler.app.past import load
from hpa_scaler.decide.suggest import suggest
from hpa_scaler.decide.variants import Variant
from hpa_scaler.report.suggestions import FloorSuggestions, suggestions_document

_TODAY = Variant("today", "today")


async def suggested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> FloorSuggestions:
    """Return the suggestions that *arguments* ask for. Raises as ``backtest`` does."""
    loaded = await load(arguments, configured, [_TODAY], say, propose=True)
    found = []
    for past in loaded.pasts:
        say(f"fitting {past.hpa.key}")
        found.append(suggest(past, loaded.world, _TODAY, say))
    return suggestions_document(loaded.head, loaded.world, found, loaded.warnings)
