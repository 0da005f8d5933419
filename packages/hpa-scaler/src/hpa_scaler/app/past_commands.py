"""``backtest``, ``suggest`` and ``replay --set``: what other annotations would have done over a recorded past."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

import hpa_scaler
from hpa_scaler.app.commands import CommandSettings
from hpa_scaler.app.fleet import Say
from hpa_scaler.app.past import check_targets, load
from hpa_scaler.app.past_options import replica_price, variants_of
from hpa_scaler.app.run_settings import PROGRAM
from hpa_scaler.decide.backtest import backtest
from hpa_scaler.decide.cycle import asked_of
from hpa_scaler.decide.log_past import pasts_of_log
from hpa_scaler.decide.suggest import suggest
from hpa_scaler.decide.variants import Variant
from hpa_scaler.report.backtest_document import Tested
from hpa_scaler.report.document import FloorHead
from hpa_scaler.report.suggestions import FloorSuggestions, suggestions_document
from hpa_scaler.spec.spec import Problems
from tightship.app.cli.app import CliError
from tightship.core.counting import counted
from tightship.core.times import rfc3339
from tightship.report.document import API_VERSION, Generator, SettingsView, Source

_TODAY = Variant("today", "today")


async def tested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> Tested:
    """Return the backtest that *arguments* ask for. Raises :class:`CliError` and the errors of files and of the API."""
    variants = variants_of(arguments.sets)
    price = replica_price(arguments)
    loaded = await load(arguments, configured, variants, say)
    lived = backtest(
        loaded.pasts,
        variants,
        loaded.world,
        lambda part: say(f"replaying {counted(len(loaded.pasts), 'HPA')}: {part:.0%}"),
    )
    return Tested(loaded.head, loaded.world, loaded.pasts, lived, price, loaded.warnings)


async def suggested(arguments: argparse.Namespace, configured: CommandSettings, say: Say) -> FloorSuggestions:
    """Return the suggestions that *arguments* ask for. Raises as ``backtest`` does."""
    loaded = await load(arguments, configured, [_TODAY], say, propose=True)
    found = []
    for past in loaded.pasts:
        say(f"fitting {past.hpa.key}")
        found.append(suggest(past, loaded.world, _TODAY, say))
    return suggestions_document(loaded.head, loaded.world, found, loaded.warnings)


def replayed_sets(lines: Iterable[bytes], name: str, texts: Sequence[str]) -> Tested:
    """Return the backtest of the sets *texts* over the decision log called *name*.

    Raises :class:`~hpa_scaler.decide.cycle.LogError` and :class:`CliError`.
    """
    variants = variants_of(texts)
    pasts, world = pasts_of_log(lines)
    check_targets(variants, [past.hpa for past in pasts])
    for variant in variants:
        for past in pasts:
            asked = asked_of(variant.hpa(past.hpa, world.rules.prefix), world.rules.prefix)
            if isinstance(asked, Problems):
                raise CliError(*(f"{past.hpa.key} with the set {variant.name}: {line}" for line in asked.lines))
    head = FloorHead(
        api_version=API_VERSION,
        generator=Generator(PROGRAM, hpa_scaler.__version__),
        source=Source("file", name),
        evaluated_at=rfc3339(world.end),
        settings=SettingsView("the rules of the log", {}),
    )
    warning = f"{counted(len(pasts), 'HPA')}: a log has no metrics of the HPA; each HPA is taken to follow the traffic"
    return Tested(head, world, pasts, backtest(pasts, variants, world), None, (warning,))
