"""``replay --set``: other annotations over the past that a decision log holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import hpa_scaler
from hpa_scaler.app.apart import backtest_apart
from hpa_scaler.app.past import check_targets
from hpa_scaler.app.past_options import variants_of
from hpa_scaler.app.run_settings import PROGRAM
from hpa_scaler.decide.cycle import asked_of
from hpa_scaler.decide.log_past import pasts_of_log
from hpa_scaler.report.backtest_document import Tested
from hpa_scaler.report.document import FloorHead
from hpa_scaler.spec.spec import Problems
from tightship.app.cli.app import CliError
from tightship.core.counting import counted
from tightship.core.times import rfc3339
from tightship.report.document import API_VERSION, Generator, SettingsView, Source


def replayed_sets(lines: Iterable[bytes], name: str, texts: Sequence[str]) -> Tested:
    """Return the backtest of the sets *texts* over the decision log called *name*.

    Raises :class:`~hpa_scaler.decide.cycle.LogError` and :class:`CliError`.
    """
    variants = variants_of(texts, older=False)
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
    return Tested(head, world, pasts, backtest_apart(pasts, variants, world), None, (warning,))
