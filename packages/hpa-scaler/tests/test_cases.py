"""Floors from public reports, each with the right answer, decided before the product was asked: a folder of ``cases/``
and one row of ``CASES``, in the section of its kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from tightship_testkit.commands import Outcome

FOLDER = Path(__file__).parent / "cases"


class Case(Struct, frozen=True):
    """A command on files of ``cases/``, and what its answer has to be; *source* is the report that it was made from.

    *command* is one line: what names a file of the *folder* becomes its path. *floors* are the floors after ``plan``,
    one for each HPA, or the lowest and the highest floor of the first set of ``backtest``. *reasons* are reasons that
    the first HPA must be given in a plan. *says* and *never* are texts that the printed answer, with its complaints,
    must and must not hold, whatever the line ends.
    """

    folder: str
    source: str
    command: str = "plan -f hpas.json --outcomes outcomes.json"
    floors: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    code: int = 0


# One section for each kind of report; a row is one line where it fits.
CASES: tuple[Case, ...] = (
    # Fallbacks.
    Case(
        "02-two-fallbacks",
        "Ray Serve's dashboard: two parts that each fall back",
        "backtest -f hpas.json --past past.json",
        floors=(40, 40),
    ),
    Case(
        "03-parens", "a fallback in parentheses, a label that never matched", floors=(40,), reasons=("FallbackAnswer",)
    ),
    Case("04-schedule", "kedacore/keda#3566", "backtest -f hpas.json --past past.json", floors=(3, 10)),
    # Warnings and notes of Prometheus.
    Case("01-promql-info", "thanos#7597, prometheus#14135", floors=(9,), never=("AnswerWithWarnings",)),
    # Targets that fail.
    Case("06-completed-job", "prometheus#4823", floors=(9,), never=("FailedScrapes",)),
    # Several series.
    Case(
        "29b-by-pod-nowindow",
        "a forgotten sum",
        floors=(3,),
        reasons=("LargestOfSeries",),
        says=("the query answered with 40 series, and only the largest counts", "sum the series"),
    ),
    Case(
        "29b-by-pod-nowindow",
        "a forgotten sum",
        "explain -f hpas.json --outcomes outcomes.json shop/web",
        says=("LargestOfSeries the query answered with 40 series", "→ sum the series if their sum is meant"),
    ),
    # HPAs that can't work.
    Case(
        "11-two-hpas",
        "kubernetes#112027",
        reasons=("HpaInactive",),
        says=("shop/app-scale-down, shop/app-scale-up have the same target, Deployment/app in shop", "keep one"),
    ),
    Case(
        "11-two-hpas",
        "kubernetes#112027",
        "explain -f hpas.json --outcomes outcomes.json shop/app-scale-up",
        says=("HpaInactive Kubernetes does not scale Deployment/app", "AmbiguousSelector", "→ keep one HPA"),
    ),
    # Suggestions and forecasts.
    Case(
        "07-container-resource",
        "kube-state-metrics#2403",
        "suggest -f web.yaml --past past.json.gz",
        says=("can't tell",),
        never=("35.99",),
    ),
    Case(
        "21-weekly",
        "a load test two weeks ago",
        "backtest -f web.yaml --past flat.csv.gz --set week@*:forecast=weekly"
        " --from 2026-03-16T00:00:00Z --to 2026-03-17T00:00:00Z",
        says=("shop/web week 264 0 min 11 for 10.5 at 2026-03-16T00:40:00Z 11..11",),
    ),
    # Files of the past.
    Case("10-csv", "Grafana's CSV for Excel", "backtest -f web.yaml --past grafana-excel.csv", floors=(100, 109)),
    Case("10-csv", "Grafana's CSV, milliseconds", "backtest -f web.yaml --past grafana-ms.csv", floors=(100, 110)),
    Case("10-csv", "Grafana's CSV with a unit", "backtest -f web.yaml --past grafana-unit.csv", floors=(100, 110)),
    Case("10-csv", "a German spreadsheet", "backtest -f web.yaml --past german.csv", floors=(100, 110)),
    Case("10-csv", "thousands", "backtest -f web.yaml --past thousands.csv --scale 0.01", floors=(100, 110)),
    Case(
        "10-csv",
        "three series",
        "backtest -f web.yaml --past three-series.csv",
        floors=(34, 37),
        says=("holds 3 series, 'web-a', 'web-b', 'web-c'; the first counts; --series NAME names another",),
    ),
    Case("10-csv", "three series", "backtest -f web.yaml --past three-series.csv --series web-b", never=("3 series",)),
    # Annotations that others write.
    Case("31-estafette-gke", "estafette-extension-gke", "plan -f as-generated.yaml --outcomes out.json", floors=(60,)),
    Case("31-estafette-gke", "estafette-extension-gke", "plan -f default.yaml --outcomes out.json", floors=(60,)),
    Case("31-estafette-gke", "estafette-extension-gke", "plan -f empty.yaml --outcomes out.json", floors=(16,)),
    Case("31-estafette-gke", "estafette-extension-gke", "plan -f onlyquery.yaml --outcomes out.json", floors=(16,)),
    Case("31-estafette-gke", "estafette-extension-gke", "plan -f zero.yaml --outcomes out.json", floors=(16,)),
    # Three in the morning.
    Case(
        "28-3am",
        "an outage of Prometheus",
        "plan -f outage.hpas.json --outcomes outage.outcomes.json",
        floors=(40,),
        reasons=("ConnectionFailed",),
    ),
    Case(
        "28-3am",
        "an outage of Prometheus",
        "explain -f outage.hpas.json --outcomes outage.outcomes.json --now 2027-01-15T08:45:00Z shop/web",
        says=(
            "no complete answer since 2027-01-15T08:37:30Z, in 7 cycles",
            "the floor stays until 15m after the first complete answer",
            "→ see that the server runs",
        ),
        never=("FollowsLowerBound",),
    ),
    Case(
        "28-3am",
        "after the outage",
        "explain -f after-outage.hpas.json --outcomes after-outage.outcomes.json --now 2027-01-15T08:47:30Z shop/web",
        says=("→ wait: without another gap the floor may be 9 from 2027-01-15T09:00:30Z (in 13m) on",),
    ),
    Case(
        "28-3am",
        "the lowering window",
        "explain -f lowering-window.hpas.json --outcomes lowering-window.outcomes.json --now 2027-01-15T08:41:15Z"
        " shop/web",
        says=("the floor may be 9 from 2027-01-15T08:46:30Z (in 5m) on", "→ wait;"),
    ),
    Case(
        "28-3am",
        "a sudden rise",
        "explain -f sudden-rise.hpas.json --outcomes sudden-rise.outcomes.json --now 2027-01-15T08:38:45Z shop/web",
        says=("once it has been wanted for 7m, at 2027-01-15T08:45:00Z (in 6m)", "→ if the traffic is real"),
    ),
)


def wrong(case: Case, cli: Callable[..., Outcome]) -> list[str]:
    """Return what is wrong with the answer to *case*."""
    folder = FOLDER / case.folder
    command = [folder / word if (folder / word).is_file() else word for word in case.command.split()]
    found: list[str] = []
    if case.floors or case.reasons:
        outcome = cli(*command, "-o", "json")
        if outcome.code != case.code:
            return [f"exit code {outcome.code}: {outcome.err}"]
        hpas = json.loads(outcome.out)["hpas"]
        if case.command.startswith("backtest"):
            first = hpas[0]["sets"][0]
            floors = first["lowestFloor"], first["highestFloor"]
        else:
            floors = tuple(each["minimum"]["after"] for each in hpas)
        if case.floors and floors != case.floors:
            found.append(f"floors {floors}, not {case.floors}")
        found += [f"is not given {each}" for each in case.reasons if each not in hpas[0]["reasons"]]
    if case.says or case.never:
        outcome = cli(*command)
        printed = " ".join(f"{outcome.out} {outcome.err}".split())
        found += [f"exit code {outcome.code}: {outcome.err}"] if outcome.code != case.code else []
        found += [f"does not say {each!r}" for each in case.says if each not in printed]
        found += [f"says {each!r}" for each in case.never if each in printed]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.folder}: {case.command}")
def test_a_floor_of_a_public_report_is_answered_rightly(case: Case, cli: Callable[..., Outcome]) -> None:
    assert wrong(case, cli) == []
