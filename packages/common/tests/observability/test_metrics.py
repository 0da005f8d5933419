"""What a scrape shows."""

from __future__ import annotations

import pytest
from msgspec import Struct
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tightship.process.metrics import NamedCounter, RunMetrics, SnapshotGauge, new_registry


class Health(Struct):
    age: float | None
    synced: bool


def scraped(registry: object) -> dict[str, float]:
    """Samples as ``name{label=value}``."""
    text = generate_latest(registry).decode()  # type: ignore[arg-type]
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    return {
        each.name + "".join(f"{{{key}={value}}}" for key, value in sorted(each.labels.items())): each.value
        for each in samples
    }


def test_the_build_and_the_process_are_shown() -> None:
    seen = scraped(new_registry("node-compactor", "1.2"))
    assert seen["tightship_build_info{controller=node-compactor}{version=1.2}"] == 1
    assert seen["process_resident_memory_bytes"] > 0


def test_registries_do_not_share_anything() -> None:
    for _ in range(2):
        RunMetrics(new_registry("x"))


def test_a_node_that_has_gone_is_gone_from_the_metric() -> None:
    registry = new_registry("x")
    gauge = SnapshotGauge("nodes_ratio", "d", ("node", "resource"), registry=registry)
    gauge.replace({("a", "cpu"): 0.5, ("b", "cpu"): 0.25})
    gauge.replace({("b", "cpu"): 0.75})
    assert {key: value for key, value in scraped(registry).items() if key.startswith("nodes_")} == {
        "nodes_ratio{node=b}{resource=cpu}": 0.75
    }


def test_a_wrong_number_of_labels_changes_nothing() -> None:
    registry = new_registry("x")
    gauge = SnapshotGauge("nodes_ratio", "d", ("node",), registry=registry)
    gauge.replace({("a",): 1})
    with pytest.raises(ValueError, match=r"nodes_ratio has the labels node, not \('b', 'c'\)"):
        gauge.replace({("b",): 1, ("b", "c"): 2})
    assert scraped(registry)["nodes_ratio{node=a}"] == 1


def test_a_name_can_be_had_only_once() -> None:
    registry = new_registry("x")
    SnapshotGauge("nodes", "d", (), registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        SnapshotGauge("nodes", "d", (), registry=registry)


def test_a_loop_that_hangs_shows_while_it_is_scraped() -> None:
    registry, clock = new_registry("x"), [1000.0]
    metrics = RunMetrics(registry, now=lambda: clock[0])
    clock[0] = 1010
    assert scraped(registry)["tightship_loop_age_seconds"] == 10
    metrics.loop_done(0.2, succeeded=True)
    clock[0] = 1015
    metrics.loop_done(0.2, succeeded=False)
    seen = scraped(registry)
    assert seen["tightship_loop_age_seconds"] == 5
    assert seen["tightship_loop_last_success_timestamp_seconds"] == 1010
    assert seen["tightship_loop_failures_total"] == 1
    assert seen["tightship_loop_duration_seconds_count"] == 2
    assert not [key for key in seen if key.endswith("_created")]


def test_the_cache_is_looked_at_while_it_is_scraped() -> None:
    registry = new_registry("x")
    stats = {"Pod": Health(None, False)}
    RunMetrics(registry).watch_cache(lambda: stats)
    seen = scraped(registry)
    assert seen["tightship_cache_synced{kind=Pod}"] == 0
    assert "tightship_cache_age_seconds{kind=Pod}" not in seen
    stats["Pod"] = Health(3.5, True)
    seen = scraped(registry)
    assert (seen["tightship_cache_synced{kind=Pod}"], seen["tightship_cache_age_seconds{kind=Pod}"]) == (1, 3.5)


def test_dropped_events_are_counted_by_cause() -> None:
    registry = new_registry("x")
    RunMetrics(registry).event_dropped("queue-full")
    assert scraped(registry)["tightship_events_dropped_total{cause=queue-full}"] == 1


def test_a_counter_with_a_name_of_its_own_has_series_by_label() -> None:
    registry = new_registry("x")
    counter = NamedCounter("older_totals", "d", ("pool", "status"), registry=registry)
    assert not [key for key in scraped(registry) if key.startswith("older")]
    counter.inc("web", "done")
    counter.inc("web", "done", by=2)
    counter.inc("lab", "failed")
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        assert 'older_totals{pool="web",status="done"} 3' in choose_encoder(accept)[0](registry).decode()
    counter.keep(lambda values: values[0] == "web")
    assert [key for key in scraped(registry) if key.startswith("older")] == ["older_totals{pool=web}{status=done}"]
