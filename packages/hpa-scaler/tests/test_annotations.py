"""Annotations: the older controller's as they were, new ones, and what is said of those that can't be used."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.annotations.parsing import (
    ANNOTATIONS,
    BY_KEY,
    check_defaults,
    enabled,
    parse_spec,
    prefix_of,
    states_of,
)
from hpa_scaler.annotations.spec import (
    PREFIX,
    Band,
    FloorSpec,
    HoldSpec,
    MissingData,
    PauseSpec,
    Problems,
    QuerySpec,
    ServerRef,
)
from tightship.rules.windows import Windows, parse_window


def annotations(prefix: str = PREFIX, /, **named: str) -> dict[str, str]:
    """Annotations by their names after ``hpa-scaler-``, with ``_`` for ``-``."""
    return {f"{prefix}/hpa-scaler-{name.replace('_', '-')}": text for name, text in named.items()}


def spec_of(**named: str) -> FloorSpec:
    found = parse_spec(annotations(**named))
    assert isinstance(found, FloorSpec), found
    return found


def problems_of(**named: str) -> tuple[str, ...]:
    found = parse_spec(annotations(**named))
    assert isinstance(found, Problems), found
    return found.lines


@pytest.mark.parametrize(
    ("text", "on"), [("true", True), ("True", False), ("1", False), (" true", False), ("", False), ("false", False)]
)
def test_only_true_opts_in(text: str, on: bool) -> None:
    assert enabled({"tightship.dev/hpa-scaler": text}) is on
    assert not enabled({})


def test_the_prefix_is_a_setting() -> None:
    theirs = {"example.com/hpa-scaler": "true"} | annotations("example.com", delta="2", prometheus_query="up")
    assert enabled(theirs, "example.com")
    assert not enabled(theirs)
    found = parse_spec(theirs, "example.com")
    assert isinstance(found, FloorSpec)
    assert found.queries == (QuerySpec("up", delta=2.0),)
    assert parse_spec(theirs) == FloorSpec()


def test_without_annotations_everything_is_as_in_the_older_controller() -> None:
    spec = spec_of()
    assert spec.queries == ()
    assert (spec.ratio, spec.rollout_check, spec.max_replicas) == (1.0, False, "raise")
    assert (spec.window, spec.deadband, spec.up_ratio, spec.up_pods) == (None, Band(), None, None)
    assert spec.missing == MissingData("hold", 3)


def test_the_older_controllers_annotations_are_read_as_they_are() -> None:
    spec = spec_of(
        prometheus_query="sum(rate(requests_total[5m])) by (app)",
        requests_per_replica="2.5",
        delta="-0.5",
        prometheus_server_url="http://prometheus.monitoring.svc/",
        scale_down_max_ratio="0.2",
        enable_scale_down_ratio_deployment_checking="true",
        state='{"enabled":"true"}',
    )
    server = ServerRef(url="http://prometheus.monitoring.svc")
    assert spec.queries == (QuerySpec("sum(rate(requests_total[5m])) by (app)", 2.5, -0.5, server),)
    assert (spec.ratio, spec.rollout_check) == (0.2, True)


def test_an_empty_query_is_no_query() -> None:
    assert spec_of(prometheus_query="", requests_per_replica="10").queries == ()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("requests_per_replica", "1_000", 1000.0),
        ("requests_per_replica", "0x1p4", 16.0),
        ("requests_per_replica", "+2", 2.0),
        ("delta", "-3", -3.0),
        ("delta", "0", 0.0),
        ("scale_down_max_ratio", "0", 0.0),
        ("scale_down_max_ratio", "2", 2.0),
    ],
)
def test_numbers_are_read_as_go_reads_them(name: str, text: str, value: float) -> None:
    spec = spec_of(prometheus_query="up", **{name: text})
    found = {"requests_per_replica": spec.queries[0].per_replica, "delta": spec.queries[0].delta}
    assert found.get(name, spec.ratio) == value


NOT_NUMBERS = ["abc", "2,5", " 2.5", "2.5 ", "20%", "1e400", "\u0661", "0x10", "NaN", "Inf", "-Inf", "1__0"]


@pytest.mark.parametrize(
    "name", ["requests-per-replica", "delta", "scale-down-max-ratio", "enable-scale-down-ratio-deployment-checking"]
)
def test_an_empty_text_of_the_older_controllers_generators_is_absent(name: str) -> None:
    assert spec_of(prometheus_query="q", **{name.replace("-", "_"): ""}) == spec_of(prometheus_query="q")


def test_beside_an_empty_query_requests_per_replica_count_for_nothing() -> None:
    assert spec_of(prometheus_query="", requests_per_replica="0.00").queries == ()


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        *(
            ("requests-per-replica", text, "a number above 0 such as 2.5, without blanks or a unit")
            for text in (*NOT_NUMBERS, "0", "-1", "-0")
        ),
        *(("delta", text, "a number such as 2, -0.5 or 1e3, without blanks or a unit") for text in NOT_NUMBERS),
        *(
            ("scale-down-max-ratio", text, "a number from 0 on such as 0.2, without blanks or a unit")
            for text in (*NOT_NUMBERS, "-0.5", "-1e-9")
        ),
    ],
)
def test_a_bad_number_is_an_error_and_never_the_default(name: str, text: str, allowed: str) -> None:
    [line] = problems_of(**{name: text})
    assert line == f"tightship.dev/hpa-scaler-{name}: {text!r}: allowed is {allowed}"


BAD = [
    *(
        ("enable_scale_down_ratio_deployment_checking", text, "allowed are true and false")
        for text in ("True", "1", "yes", " true")
    ),
    ("missing_data", "replicas", "allowed are hold, zero, replicas=N, current and currentIfHigher"),
    ("missing_data", "replicas=-1", "allowed are hold"),
    ("missing_data", "hold=3", "allowed are hold"),
    ("missing_data_after", "0", "allowed is a whole number from 1 on"),
    ("minimum_replicas", "1.5", "allowed is a whole number from 0 on"),
    ("maximum_replicas", "0", "allowed is a whole number from 1 on"),
    ("maximum_replicas", "99999999999", "allowed is a whole number from 1 on"),
    ("max_replicas_policy", "Raise", "allowed are raise, clamp"),
    ("several_series", "first", "allowed are hold, max, error"),
    ("deadband", "0.05", "allowed is a number of pods such as 1, or a percentage of the floor below 100 such as 5%"),
    ("deadband", "100%", "allowed is a number of pods"),
    ("lowering_window", "soon", "allowed is a duration such as 90s, 10m, 1h30m or 1d, or a plain number of seconds"),
    ("lowering_window", "25h", "and no more than a day"),
    ("lowering_window", "-5", "allowed is a duration"),
    ("scale_up_max_pods", "0", "allowed is a whole number from 1 on"),
    ("scale_up_max_ratio", "-1", "allowed is a number from 0 on"),
    ("paused", "tomorrow", "allowed are true, false, and the time at which it ends, RFC 3339"),
    ("paused", "2026-03-01", "allowed are true, false, and the time"),
    ("paused_scale_up", "2026-03-01T04:00:00", "allowed are true, false, and the time"),
    ("prometheus_server", "a b", "allowed is the name of a server in prometheusServers"),
    ("prometheus_server_url", "", "is not an http or https address; allowed is an address such as"),
    ("prometheus_server_url", "ftp://x", "is not an http or https address"),
    ("prometheus_server_url", "http://x/api/v1", "is no server but a part of its API; leave out /api/v1"),
    ("prometheus_server_url", "http://me:secret@x", "contains a user name"),
    ("prometheus_server_url", "http://x/?a=b", "contains a query or a fragment"),
    ("request_per_replica", "2", "no annotation has this name; did you mean tightship.dev/hpa-scaler-requests-per-"),
    ("nonsense", "2", "no annotation has this name"),
    ("prometheus_query_1", "up", "no annotation has this name"),
    ("prometheus_query_17", "up", "no annotation has this name"),
    ("lowering_window_2", "10m", "no annotation has this name"),
    ("delta_2", "1", "is no query, but there are other annotations of this number"),
]


@pytest.mark.parametrize(("name", "text", "says"), BAD)
def test_an_annotation_that_cannot_be_used_is_named_with_its_value_and_what_is_allowed(
    name: str, text: str, says: str
) -> None:
    [line] = problems_of(**{name: text})
    full = name.replace("_", "-") if name != "delta_2" else "prometheus-query-2"
    assert line.startswith(f"tightship.dev/hpa-scaler-{full}: ")
    assert repr(text if name != "delta_2" else "") in line
    assert says in line


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("tightship.dev/prometheus-query", "tightship.dev/hpa-scaler-prometheus-query"),
        ("tightship.dev/prometheus-query-2", "tightship.dev/hpa-scaler-prometheus-query-2"),
        ("tightship.dev/requests-per-replica", "tightship.dev/hpa-scaler-requests-per-replica"),
        ("tightship.dev/minimum-replicas", "tightship.dev/hpa-scaler-minimum-replicas"),
        ("tightship.dev/paused", "tightship.dev/hpa-scaler-paused"),
        ("estafette.io/prometheus-query", "estafette.io/hpa-scaler-prometheus-query"),
    ],
)
def test_a_setting_without_the_controllers_name_is_named_instead_of_a_floor_that_falls(key: str, meant: str) -> None:
    # Without its query an HPA that is opted in would follow the lower bound.
    found = parse_spec({**annotations(), key: "1"})
    assert found == Problems((f"{key}: no annotation has this name; did you mean {meant}?",))


@pytest.mark.parametrize(
    "key",
    ["tightship.dev/node-group-min-size", "tightship.dev/query", "estafette.io/state", "example.com/prometheus-query"],
)
def test_annotations_for_others_are_no_settings(key: str) -> None:
    assert isinstance(parse_spec({**annotations(), key: "1"}), FloorSpec)


def test_all_problems_are_told_at_once() -> None:
    lines = problems_of(requests_per_replica="abc", delta="x", lowering_window="x", paused="x")
    assert len(lines) == 4


@pytest.mark.parametrize("name", ["prometheus_query", "prometheus_query_2", "hold_query"])
def test_a_query_of_more_than_8_kilobytes_is_refused_by_its_name(name: str) -> None:
    assert isinstance(parse_spec(annotations(**{name: "x" * 8192})), FloorSpec)
    [line] = problems_of(**{name: "é" + "x" * 8191})
    assert line.startswith(f"tightship.dev/hpa-scaler-{name.replace('_', '-')}: ")
    assert "is a query of 8193 bytes, and at most 8192 are allowed" in line


@pytest.mark.parametrize("name", ["delta", "prometheus_server_url", "paused", "lowering_window", "several_series"])
def test_no_problem_is_as_long_as_the_text_that_is_one(name: str) -> None:
    [line] = problems_of(**{name: "/" * 100_000})
    assert len(line) < (250 if name == "delta" else 1000)


def test_bounds_that_exclude_each_other_are_a_problem() -> None:
    [line] = problems_of(minimum_replicas="5", maximum_replicas="4")
    assert line == "tightship.dev/hpa-scaler-minimum-replicas: '5': is above maximum-replicas, which is 4"


def test_several_queries_take_what_they_do_not_say_from_the_first() -> None:
    spec = spec_of(
        prometheus_query="a",
        requests_per_replica="10",
        delta="1",
        prometheus_server="main",
        prometheus_query_2="b",
        delta_2="0",
        prometheus_query_10="c",
        requests_per_replica_10="5",
        prometheus_server_url_10="https://other:9090/p",
    )
    main = ServerRef(name="main")
    assert spec.queries == (
        QuerySpec("a", 10.0, 1.0, main),
        QuerySpec("b", 10.0, 0.0, main),
        QuerySpec("c", 5.0, 1.0, ServerRef(url="https://other:9090/p")),
    )


def test_a_second_query_needs_no_first_and_is_told_no_problem_of_it_again() -> None:
    assert spec_of(prometheus_query_2="b").queries == (QuerySpec("b"),)
    assert len(problems_of(prometheus_query="a", prometheus_query_2="b", delta="x")) == 1


def test_a_name_and_an_address_of_a_server_exclude_each_other() -> None:
    [line] = problems_of(prometheus_query="a", prometheus_server="x", prometheus_server_url="http://y")
    assert line.startswith(
        "tightship.dev/hpa-scaler-prometheus-server-url: 'http://y': stands beside prometheus-server"
    )


def test_the_new_annotations_are_typed() -> None:
    spec = spec_of(
        prometheus_query="a",
        prometheus_server="main",
        several_series="error",
        query_range="10m",
        missing_data="replicas=7",
        missing_data_after="5",
        minimum_replicas="2",
        maximum_replicas="30",
        max_replicas_policy="clamp",
        scale_up_max_ratio="0.5",
        scale_up_max_pods="4",
        honour_scale_up_behavior="false",
        deadband="5%",
        lowering_window="600",
        lower_during="Mon-Fri 20:00-06:00; Sat,Sun; Europe/Berlin",
        hold_query='ALERTS{alertstate="firing"}',
        hold_cool_down="1m",
        paused="2026-03-01T04:00:00Z",
        paused_scale_down="true",
        paused_scale_up="false",
        dry_run="true",
    )
    assert spec == FloorSpec(
        queries=(QuerySpec("a", server=ServerRef(name="main")),),
        series="error",
        query_range=600.0,
        missing=MissingData("replicas", 5, 7),
        lowest=2,
        highest=30,
        max_replicas="clamp",
        up_ratio=0.5,
        up_pods=4,
        honour_behavior=False,
        deadband=Band(share=0.05),
        window=600.0,
        lower_during=Windows((parse_window("Mon-Fri 20:00-06:00"), parse_window("Sat,Sun")), zone="Europe/Berlin"),
        hold=HoldSpec('ALERTS{alertstate="firing"}', 60.0, ServerRef(name="main")),
        paused=PauseSpec(True, 1772337600.0),
        paused_down=PauseSpec(True),
        paused_up=PauseSpec(False),
        dry_run=True,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Mon-Fry", "'Mon-Fry'"),
        ("Sat; Mars/Olympus", "time zone Mars/Olympus is unknown"),
        ("Sat; Europe", "'Europe' is not a window"),
        (";", "'' is not a window"),
        ("Sat;", "'' is not a window"),
    ],
)
def test_windows_that_are_none_are_told(text: str, says: str) -> None:
    [line] = problems_of(lower_during=text)
    assert says in line.replace('"', "'")


def test_the_hold_query_may_have_a_server_of_its_own() -> None:
    spec = spec_of(prometheus_server="main", hold_query="x", hold_query_server="alerts")
    assert spec.hold == HoldSpec("x", 300.0, ServerRef(name="alerts"))


def test_a_pause_ends_at_its_time() -> None:
    pause = spec_of(paused="2026-03-01T04:00:00+01:00").paused
    assert pause.until is not None
    assert pause.active(pause.until - 1)
    assert not pause.active(pause.until)
    assert spec_of(paused="true").paused.active(math.inf)


@pytest.mark.parametrize(
    ("band", "floor", "pods"),
    [(Band(2), 100, 2), (Band(share=0.05), 100, 5), (Band(share=0.05), 10, 0), (Band(), 9, 0)],
)
def test_a_band_in_pods_or_as_a_share(band: Band, floor: int, pods: int) -> None:
    assert band.of(floor) == pods


DEFAULTS = {"requests-per-replica": "20", "lowering-window": "10m", "prometheus-server": "main", "dry-run": "true"}


def test_defaults_stand_where_an_hpa_says_nothing() -> None:
    found = parse_spec(annotations(prometheus_query="a", dry_run="false"), defaults=DEFAULTS)
    assert isinstance(found, FloorSpec)
    assert found.queries == (QuerySpec("a", 20.0, server=ServerRef(name="main")),)
    assert (found.window, found.dry_run) == (600.0, False)
    found = parse_spec(annotations(prometheus_query="a", prometheus_server_url="http://x"), defaults=DEFAULTS)
    assert isinstance(found, FloorSpec)
    assert found.queries[0].server == ServerRef(url="http://x"), "an address of its own replaces a default server"
    assert isinstance(parse_spec(annotations(requests_per_replica="abc"), defaults=DEFAULTS), Problems)


def test_bad_defaults_are_named_by_their_keys() -> None:
    assert check_defaults(DEFAULTS) == []
    bad = check_defaults({"requests-per-replica": "0", "missing-data": "none", "nonsense": "1"})
    assert [line.partition(":")[0] for line in bad] == ["missingData", "nonsense", "requestsPerReplica"]


def test_every_annotation_has_a_key_of_its_own() -> None:
    assert len(BY_KEY) == len(ANNOTATIONS)
    assert BY_KEY["enableScaleDownRatioDeploymentChecking"].name == "enable-scale-down-ratio-deployment-checking"


@given(st.dictionaries(st.sampled_from([each.name for each in ANNOTATIONS]), st.text(max_size=12)))
def test_no_text_breaks_the_parser(texts: dict[str, str]) -> None:
    found = parse_spec({f"tightship.dev/hpa-scaler-{name}": text for name, text in texts.items()})
    if isinstance(found, FloorSpec):
        assert found.ratio >= 0
        assert all(query.per_replica > 0 and math.isfinite(query.delta) for query in found.queries)
    else:
        assert all("\n" not in line for line in found.lines)


def test_an_annotation_sets_a_field_of_the_spec_that_no_other_sets() -> None:
    fields = [each.field for each in ANNOTATIONS if each.field]
    assert set(fields) == set(FloorSpec.__struct_fields__) - {"queries", "missing", "hold", "forecast"}
    assert len(fields) == len(set(fields))


# The older controller's prefix.


def test_an_older_hpa_means_what_its_native_form_does() -> None:
    told = {"prometheus_query": "up", "requests_per_replica": "2.5", "delta": "-0.5", "scale_down_max_ratio": "0.2"}
    older = annotations("estafette.io", **told)
    assert enabled({"estafette.io/hpa-scaler": "true"})
    assert parse_spec(older) == parse_spec(annotations(**told))
    assert prefix_of(older, PREFIX) == "estafette.io"
    assert prefix_of(annotations(**told), PREFIX) == PREFIX


def test_an_hpa_of_both_prefixes_is_read_name_by_name() -> None:
    found = parse_spec({**annotations(prometheus_query="up"), "estafette.io/hpa-scaler-requests-per-replica": "4"})
    assert isinstance(found, FloorSpec)
    assert found.queries[0].per_replica == 4


@pytest.mark.parametrize(
    ("native", "older"),
    [
        ("tightship.dev/hpa-scaler-delta", "estafette.io/hpa-scaler-delta"),
        ("tightship.dev/hpa-scaler", "estafette.io/hpa-scaler"),
    ],
)
def test_a_name_of_both_prefixes_contradicts_itself(native: str, older: str) -> None:
    given = {**annotations(prometheus_query="up"), native: "true", older: "false"}
    found = parse_spec(given)
    assert isinstance(found, Problems)
    told = f"{older}: stands beside {native}, which is the same setting; allowed is one of them"
    assert told in found.lines


def test_a_problem_names_the_older_annotation_that_the_user_wrote() -> None:
    found = parse_spec(annotations("estafette.io", prometheus_query="up", delta="x"))
    assert isinstance(found, Problems)
    [line] = found.lines
    assert line.startswith("estafette.io/hpa-scaler-delta: 'x': allowed is a number")


def test_the_state_keeps_the_prefix_of_the_hpa_and_moves_with_it() -> None:
    older = {"estafette.io/hpa-scaler": "true", "estafette.io/hpa-scaler-state": "{}"}
    converted = {"tightship.dev/hpa-scaler": "true", "estafette.io/hpa-scaler-state": "{}"}
    opted_out = {"estafette.io/hpa-scaler-state": "{}"}
    assert prefix_of(older, PREFIX) == "estafette.io"
    assert prefix_of(converted, PREFIX) == PREFIX
    for each in (older, converted, opted_out):
        assert states_of(each, PREFIX) == ("estafette.io/hpa-scaler-state",)
