"""The metrics: the older controller's to the letter, and no series of what is gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hpa_builder import NO_AGE, NOW, QUERY, annotated, answer, failure, hpa, spec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, generate_latest

from hpa_scaler.annotations.queries import Outcome, Query
from hpa_scaler.judge.decision import DropState
from hpa_scaler.judge.judge import Cycle, judge_cycle, subject_of
from hpa_scaler.write.metrics import BY_URL, ScalerMetrics
from tightship.objects import HorizontalPodAutoscaler
from tightship.process.metrics import RunMetrics, new_registry

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"
ASKING = annotated(prometheus_query=QUERY, requests_per_replica="10")


def cycle_of(*hpas: HorizontalPodAutoscaler, outcome: Outcome | None = None) -> Cycle:
    """The cycle in which the query of each came to *outcome*."""
    outcomes: Mapping[Query, Outcome] = {Query(QUERY): answer(72.0) if outcome is None else outcome}
    asked = {each.uid: spec(**_named(each.annotations)) for each in hpas}
    subjects = [
        subject_of(each, asked[each.uid], outcomes=outcomes, rollout=None, rules=NO_AGE, now=NOW) for each in hpas
    ]
    return judge_cycle(subjects, DropState(), NO_AGE, NOW)


def _named(annotations: Mapping[str, str]) -> dict[str, str]:
    start = "tightship.dev/hpa-scaler-"
    return {key.removeprefix(start): text for key, text in annotations.items() if key.startswith(start)}


def round_of(cycle: Cycle, **more: Any) -> dict[str, Any]:
    return {"cycle": cycle, "passed_over": {}, "unreadable": 0, "circuits": {}, "each": True, "dry": False, **more}


class Scraped:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = ScalerMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def old(self, name: str, hpa: str = "web", namespace: str = "shop") -> float | None:
        return self.value(f"estafette_hpa_scaler_{name}", hpa=hpa, namespace=namespace)

    def samples(self) -> set[str]:
        return {
            line.split()[0] for line in generate_latest(self.registry).decode().splitlines() if not line.startswith("#")
        }


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_the_gauges_of_the_older_controller(scraped: Scraped) -> None:
    scraped.metrics.show(**round_of(cycle_of(hpa(minimum=5, replicas=6, annotations=ASKING))))
    assert scraped.old("min_replicas") == 8
    assert scraped.old("actual_replicas") == 6
    assert scraped.old("request_rate") == 72


def test_the_counter_of_the_older_controller_has_no_other_name(scraped: Scraped) -> None:
    cycle = cycle_of(hpa(annotations=ASKING), hpa(name="other", uid="u2", annotations=ASKING))
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        scraped.metrics.counted(cycle, {"shop": 3, "lab": 2}, {"u1": "written"})
        assert "estafette_hpa_scaler_totals{" in choose_encoder(accept)[0](scraped.registry).decode()
    statuses = [("shop", "succeeded", 1), ("shop", "skipped", 4), ("lab", "skipped", 2)]
    for namespace, status, times in statuses:
        name = "estafette_hpa_scaler_totals"
        assert scraped.value(name, namespace=namespace, status=status, initiator="poller") == 2 * times


@pytest.mark.parametrize("ending", ["refused", "failed", "unheard", None])
def test_a_write_or_a_query_that_failed_counts_as_the_older_controllers_did(scraped: Scraped, ending: Any) -> None:
    cycle = cycle_of(hpa(annotations=ASKING), outcome=None if ending else failure())
    scraped.metrics.counted(cycle, {}, {"u1": ending} if ending else {})
    assert scraped.value("estafette_hpa_scaler_totals", namespace="shop", status="failed", initiator="poller") == 1


def test_a_query_without_an_answer_has_no_rate(scraped: Scraped) -> None:
    scraped.metrics.show(**round_of(cycle_of(hpa(annotations=ASKING), outcome=failure())))
    assert scraped.old("request_rate") is None
    assert scraped.old("min_replicas") == 5
    assert scraped.value("tightship_hpas_by_reason", reason="ConnectionFailed") == 1


def test_what_is_gone_or_opted_out_leaves_no_series(scraped: Scraped) -> None:
    stays = hpa(annotations=ASKING)
    scraped.metrics.show(**round_of(cycle_of(stays, hpa(name="vanished", uid="u2", annotations=ASKING))))
    assert scraped.old("min_replicas", "vanished") == 8
    scraped.metrics.show(**round_of(cycle_of(stays)))
    assert not {each for each in scraped.samples() if "vanished" in each}
    scraped.metrics.counted(cycle_of(stays), {"emptied": 1}, {})
    scraped.metrics.counted(cycle_of(stays), {}, {})
    assert not {each for each in scraped.samples() if "emptied" in each}


def test_a_replica_that_stands_by_shows_no_hpa(scraped: Scraped) -> None:
    cycle = cycle_of(hpa(annotations=ASKING))
    scraped.metrics.show(**round_of(cycle, circuits={"default": "open"}))
    scraped.metrics.counted(cycle, {}, {})
    scraped.metrics.clear()
    assert not {each for each in scraped.samples() if "shop" in each or "server_circuit" in each or "hpas{" in each}


def test_the_series_of_each_hpa_can_be_switched_off(scraped: Scraped) -> None:
    scraped.metrics.show(**round_of(cycle_of(hpa(annotations=ASKING)), each=False))
    assert not {each for each in scraped.samples() if 'hpa="' in each}
    assert scraped.value("tightship_hpas", action="raise") == 1
    assert scraped.value("tightship_hpa_floor_replicas", which="now") == 5
    assert scraped.value("tightship_hpa_floor_replicas", which="wanted") == 8


def test_where_a_floor_in_dry_run_would_go(scraped: Scraped) -> None:
    tried = hpa(annotations={**ASKING, **annotated(dry_run="true")})
    scraped.metrics.show(**round_of(cycle_of(tried, hpa(name="real", uid="u2", annotations=ASKING))))
    name = "tightship_hpa_would_be_min_replicas"
    assert scraped.value(name, hpa="web", namespace="shop") == 8
    assert scraped.value(name, hpa="real", namespace="shop") is None
    scraped.metrics.show(**round_of(cycle_of(hpa(annotations=ASKING)), dry=True))
    assert scraped.value(name, hpa="web", namespace="shop") == 8


def test_a_maximum_that_was_raised_shows_by_how_much(scraped: Scraped) -> None:
    scraped.metrics.show(**round_of(cycle_of(hpa(maximum=6, annotations=ASKING))))
    assert scraped.value("tightship_hpa_max_replicas_raised", hpa="web", namespace="shop") == 3


def test_servers_that_hpas_name_by_address_have_one_label(scraped: Scraped) -> None:
    scraped.metrics.serve(["default", "mimir"])
    for server in ("mimir", "http://a:1", "http://b:2"):
        scraped.metrics.asked(server, "answered", 0.1)
    assert scraped.value("tightship_hpa_queries_total", server="mimir", outcome="answered") == 1
    assert scraped.value("tightship_hpa_queries_total", server=BY_URL, outcome="answered") == 2
    assert scraped.value("tightship_hpa_query_duration_seconds_count", server=BY_URL) == 2


def test_the_circuit_of_a_server_is_one_of_its_states(scraped: Scraped) -> None:
    scraped.metrics.serve(["default"])
    scraped.metrics.show(**round_of(cycle_of(), circuits={"default": "half-open"}))
    found = {
        state: scraped.value("tightship_hpa_server_circuit", server="default", state=state)
        for state in ("closed", "open", "half-open")
    }
    assert found == {"closed": 0, "open": 0, "half-open": 1}


def registered() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every metric that is ours, by the name that is scraped: its type and labels."""
    registry = new_registry("hpa-scaler")
    ScalerMetrics(registry)
    RunMetrics(registry)
    found = {}
    for collector in registry._collector_to_names:
        labels = tuple(getattr(collector, "_labels", None) or getattr(collector, "_labelnames", ()))
        for family in collector.collect() if not hasattr(collector, "describe") else collector.describe():
            if family.name.startswith("tightship_"):
                counter = family.type == "counter"
                kind = "counter" if family.type == "unknown" else family.type
                found[family.name + "_total" * counter] = (kind, labels)
    return found


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = re.findall(r"^\| `([a-z_]+)(?:{(.+)})?`(?: \((\w+)\))? \|", DOCS.read_text(), re.MULTILINE)
    return {
        name: (kind or ("counter" if name.endswith("_total") else "gauge"), tuple(labels.split(", ")) if labels else ())
        for name, labels, kind in rows
    }


def test_the_page_has_every_metric_with_its_type_and_labels() -> None:
    assert registered().items() <= documented().items()
