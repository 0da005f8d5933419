"""What an answer says, by its bytes."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa_scaler.annotations.queries import Failure, QueryAnswer
from hpa_scaler.prometheus.answers import Matrix, Moment, matrix, outcome

from .conftest import AT, body


def answered(content: Any, status: int = 200) -> QueryAnswer | Failure:
    return outcome(status, content if isinstance(content, bytes) else json.dumps(content).encode())


def result(kind: str, content: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": content}}


def inside(**more: Any) -> dict[str, Any]:
    """An answer with *more* in its data."""
    given = body("5")
    return {**given, "data": {**given["data"], **more}}


def error(kind: str, text: str) -> dict[str, str]:
    return {"status": "error", "errorType": kind, "error": text}


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        (body("110.25"), QueryAnswer(1, 110.25)),
        (body("0"), QueryAnswer(1, 0.0, zeros=1)),
        (body("-3e+02"), QueryAnswer(1, -300.0)),
        (body(), QueryAnswer(0)),
        (body("1", "7.5", "3"), QueryAnswer(3, 7.5)),
        (body("NaN"), QueryAnswer(1, None, not_numbers=1)),
        (body("+Inf"), QueryAnswer(1, None, infinite=1)),
        (body("-Inf", "2"), QueryAnswer(2, 2.0, infinite=1)),
        (body("1e+300"), QueryAnswer(1, 1e300)),
        (body("5", warnings=["partial response"]), QueryAnswer(1, 5.0, warnings=("partial response",))),
        (body("5", warnings=[], infos=["not a counter"]), QueryAnswer(1, 5.0)),
        (body("5", warnings=None), QueryAnswer(1, 5.0)),
        (body("5", warnings=["PromQL info: metric might not be a counter"]), QueryAnswer(1, 5.0)),
        (result("scalar", [AT, "4.5"]), QueryAnswer(1, 4.5)),
        (result("scalar", [AT, "NaN"]), QueryAnswer(1, None, not_numbers=1)),
        (result("vector", [{"value": [1, "2"]}]), QueryAnswer(1, 2.0)),
        (result("vector", None), QueryAnswer(0)),
        (result("", None), QueryAnswer(0)),
        # What servers add to an answer.
        (
            {**body("5"), "stats": {"seriesFetched": "3", "executionTimeMsec": 2}},
            QueryAnswer(1, 5.0),
        ),  # VictoriaMetrics
        ({**body("5"), "isPartial": False, "trace": {"duration_msec": 1}}, QueryAnswer(1, 5.0)),  # vmselect, trace=1
        (inside(analysis={"name": "[noop]"}), QueryAnswer(1, 5.0)),  # Thanos, analyze=true
        (inside(stats={"timings": {}}), QueryAnswer(1, 5.0)),  # Prometheus, stats=all
        (inside(explanation=None), QueryAnswer(1, 5.0)),  # Thanos before 0.36
        (
            body("5", warnings=["No StoreAPIs matched for this query"]),
            QueryAnswer(1, 5.0, warnings=("No StoreAPIs matched for this query",)),
        ),
        (
            body("5", warnings=["m3db exceeded query limit: results not exhaustive"]),
            QueryAnswer(1, 5.0, warnings=("m3db exceeded query limit: results not exhaustive",)),
        ),
        (
            body("5", warnings=["PromQL warning: encountered a mix of histograms and floats"]),
            QueryAnswer(1, 5.0, warnings=("PromQL warning: encountered a mix of histograms and floats",)),
        ),
        (body("5", infos=["PromQL info: input to histogram_quantile needed to be fixed"]), QueryAnswer(1, 5.0)),
        (body("nan"), QueryAnswer(1, None, not_numbers=1)),
        (body("inf"), QueryAnswer(1, None, infinite=1)),
        (body("Infinity"), QueryAnswer(1, None, infinite=1)),
        (body("-0"), QueryAnswer(1, -0.0, zeros=1)),
        (body("5e3"), QueryAnswer(1, 5000.0)),
        (body("0", "0"), QueryAnswer(2, 0.0, zeros=2)),
        (body("NaN", "NaN"), QueryAnswer(2, None, not_numbers=2)),
        (body("1", "NaN", "+Inf"), QueryAnswer(3, 1.0, not_numbers=1, infinite=1)),
        (json.dumps(body("5")).encode() + b"\n\n", QueryAnswer(1, 5.0)),
        (result("vector", [{"metric": None, "value": [1, "2"]}]), QueryAnswer(1, 2.0)),
        (result("vector", [{"value": [1.7e9, "2"]}]), QueryAnswer(1, 2.0)),
    ],
)
def test_a_result_is_reduced_to_what_is_judged(content: Any, answer: QueryAnswer) -> None:
    assert answered(content) == answer


@pytest.mark.parametrize("kind", ["", "vector", "matrix"])
def test_null_of_a_servers_empty_list_is_no_series(kind: str) -> None:
    raw = json.dumps(result(kind, None)).encode()
    if kind != "vector":
        assert matrix(200, raw) == Matrix(())
    if kind != "matrix":
        assert outcome(200, raw, labels=True) == QueryAnswer(0)


@pytest.mark.parametrize(
    ("content", "status", "reason", "says"),
    [
        (b"<html>hello</html>", 200, "BadAnswer", "not a Prometheus answer"),
        (b"", 200, "BadAnswer", "an empty body"),
        (b"\xff\xfe", 200, "BadAnswer", "not a Prometheus answer"),
        (b"null", 200, "BadAnswer", "not a Prometheus answer"),
        (b"{}", 200, "BadAnswer", "`status`"),
        (b"[]", 200, "BadAnswer", "not a Prometheus answer"),
        (b"[" * 100_000, 200, "BadAnswer", "not a Prometheus answer"),
        ({"status": "success"}, 200, "BadAnswer", "not a Prometheus answer"),
        ({"status": "success", "data": None}, 200, "BadAnswer", "not a Prometheus answer"),
        ({"status": "success", "data": {"resultType": "vector"}}, 200, "BadAnswer", "`result`"),
        (result("matrix", None), 200, "WrongResultType", "matrix"),
        (result("scalar", None), 200, "BadAnswer", "not a Prometheus answer"),
        (result("vector", [{"metric": {}}]), 200, "BadAnswer", "a series without a value"),
        (result("vector", [{"value": [1, 2]}]), 200, "BadAnswer", "not a Prometheus answer"),
        (result("vector", [{"value": ["1", "2"]}]), 200, "BadAnswer", "not a Prometheus answer"),
        (result("vector", [{"value": [1, "2", "3"]}]), 200, "BadAnswer", "not a Prometheus answer"),
        (result("vector", [{"value": [1, "two"]}]), 200, "BadAnswer", "'two' is not a number"),
        (result("vector", [{"value": [1, "1e999"]}]), 200, "BadAnswer", "'1e999' is not a number"),
        (result("matrix", []), 200, "WrongResultType", "a matrix; allowed are vector and scalar"),
        (result("string", [1, "x"]), 200, "WrongResultType", "a string; allowed are"),
        (result("vector", [{"histogram": [1, {"count": "3"}]}]), 200, "WrongResultType", "a native histogram"),
        ({**body("7"), "status": "error"}, 200, "BadAnswer", "the status is 'error', not success"),
        (
            {**body("7"), "status": "error", "errorType": "execution", "error": "boom"},
            200,
            "QueryRejected",
            "execution: boom",
        ),
        (
            {"status": "error", "errorType": "bad_data", "error": "1:3: parse error"},
            400,
            "QueryRejected",
            "HTTP 400: bad_data: 1:3: parse error",
        ),
        ({"status": "error", "errorType": "execution", "error": "many-to-many"}, 422, "QueryRejected", "many-to-many"),
        ({"status": "error", "errorType": "timeout", "error": "query timed out"}, 503, "TimedOut", "query timed out"),
        (
            error("bad_data", 'invalid parameter "query": context deadline exceeded'),
            400,
            "TimedOut",
            "HTTP 400: bad_data: invalid parameter",
        ),
        (error("execution", "context deadline exceeded"), 422, "TimedOut", "deadline"),
        (error("execution", "fetch series: rpc error: context deadline exceeded"), 200, "TimedOut", "rpc error"),
        (error("bad_data", 'unexpected string "context deadline exceeded"'), 400, "QueryRejected", "unexpected"),
        (error("unavailable", "starting"), 503, "HttpError", "HTTP 503: unavailable: starting"),
        (error("internal", "a panic"), 500, "HttpError", "a panic"),
        (error("too_many_requests", "too many outstanding requests"), 429, "HttpError", "outstanding"),
        (error("canceled", "query was canceled"), 499, "HttpError", "canceled"),
        (error("canceled", "query was canceled"), 422, "HttpError", "canceled"),
        (error("execution", "no store"), 500, "HttpError", "no store"),
        (error("forbidden", "not of this tenant"), 403, "HttpError", "tenant"),
        (error("bad_data", "too long"), 413, "QueryRejected", "too long"),
        (body("7"), 500, "HttpError", "HTTP 500"),
        (b"<h1>502 Bad Gateway</h1>", 502, "HttpError", "HTTP 502: <h1>502 Bad Gateway</h1>"),
        (b"", 401, "HttpError", "HTTP 401: an empty body"),
        ({"message": "no tenant"}, 403, "HttpError", "HTTP 403: "),
        # What stands in the way of a server, or is no Prometheus.
        (b"<!DOCTYPE html><html><head><title>Sign in", 200, "BadAnswer", "Sign in"),  # oauth2-proxy, Grafana, IAP
        (b"OK", 200, "BadAnswer", "not a Prometheus answer"),
        (b"default backend - 404", 404, "HttpError", "default backend"),  # ingress-nginx
        (b"404 page not found\n", 404, "HttpError", "404 page not found"),  # a path prefix that is missing
        (b"no healthy upstream", 503, "HttpError", "no healthy upstream"),  # Envoy
        (b"upstream connect error or disconnect/reset before headers", 503, "HttpError", "upstream connect"),
        (b"no org id\n", 401, "HttpError", "no org id"),  # Mimir, Cortex, Loki
        (b"too many outstanding requests", 429, "HttpError", "outstanding"),
        ({"kind": "Status", "status": "Failure", "message": "x", "code": 404}, 404, "HttpError", "HTTP 404"),
        ({"kind": "Status", "status": "Failure", "message": "x", "code": 404}, 200, "BadAnswer", "'Failure'"),
        ({"results": {"A": {"status": 200, "frames": []}}}, 200, "BadAnswer", "status"),  # Grafana's own API
        ({"code": 0, "msg": "ok", "data": {}}, 200, "BadAnswer", "status"),
        ({"error": {"root_cause": []}, "status": 404}, 404, "HttpError", "HTTP 404"),  # Elasticsearch
        (result("streams", []), 200, "WrongResultType", "a streams"),  # Loki
        (result("vector", [{"metric": {}, "values": [[1, "5"]]}]), 200, "BadAnswer", "a series without a value"),
        (result("vector", [{"value": [1, "5"]}, {"histogram": [1, {}]}]), 200, "WrongResultType", "native histogram"),
        (result("vector", [{"value": [1, None]}]), 200, "BadAnswer", "not a Prometheus answer"),
        (result("vector", [{"value": [1, ""]}]), 200, "BadAnswer", "'' is not a number"),
        (result("vector", [{"value": [1, " 5"]}]), 200, "BadAnswer", "is not a number"),
        (result("vector", [{"value": [1, "0x10"]}]), 200, "BadAnswer", "'0x10' is not a number"),
        ({**body("5"), "status": "Success"}, 200, "BadAnswer", "the status is 'Success'"),
        (json.dumps(body("5")).encode()[:-4], 200, "BadAnswer", "not a Prometheus answer"),  # cut off
        (json.dumps(body("5")).encode() * 2, 200, "BadAnswer", "not a Prometheus answer"),
        (gzip.compress(json.dumps(body("5")).encode()), 200, "BadAnswer", "not a Prometheus answer"),
        (
            error(
                "execution",
                "expanding series: the query hit the max number of chunks limit (err-mimir-max-chunks-per-query)",
            ),
            422,
            "QueryRejected",
            "err-mimir",
        ),
        (
            error("execution", "query processing would load too many samples into memory in query execution"),
            422,
            "QueryRejected",
            "too many samples",
        ),
        (error("422", "too many unique timeseries"), 422, "QueryRejected", "too many unique"),  # VictoriaMetrics
    ],
)
def test_everything_else_is_a_failure_with_its_reason(content: Any, status: int, reason: str, says: str) -> None:
    found = answered(content, status)
    assert isinstance(found, Failure)
    assert found.reason == reason
    assert says in found.detail
    assert len(found.detail) < 600
    assert "\n" not in found.detail


def test_warnings_are_cut() -> None:
    found = answered(body("1", warnings=["w" * 5000] * 100))
    assert isinstance(found, QueryAnswer)
    assert len(found.warnings) == 3
    assert len(found.warnings[0]) == 200


@given(st.integers(100, 599), st.binary(max_size=200))
def test_no_bytes_break_it(status: int, raw: bytes) -> None:
    assert isinstance(outcome(status, raw), Failure)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "metric", "x"]), inner),
    max_leaves=6,
)


@given(json_values, st.sampled_from(["vector", "scalar", "matrix", ""]))
def test_no_result_breaks_it(content: Any, kind: str) -> None:
    found = answered(result(kind, content))
    if isinstance(found, QueryAnswer) and found.highest is not None:
        assert math.isfinite(found.highest)


@pytest.mark.parametrize(
    ("status", "more", "words"),
    [
        (200, {"isPartial": True}, "the answer is marked partial (isPartial)"),
        (200, {"errorType": "execution", "error": "a shard  did not answer"}, "execution a shard did not answer"),
        (200, {"error": "a shard did not answer"}, "an error beside its result: a shard did not answer"),
        (203, {}, "HTTP 203, which is no plain answer"),
        (206, {}, "HTTP 206, which is no plain answer"),
    ],
)
def test_what_says_that_it_is_not_all_is_a_warning(status: int, more: dict[str, object], words: str) -> None:
    answered = outcome(status, json.dumps(body("4", **more)).encode())
    assert isinstance(answered, QueryAnswer)
    assert answered.highest == 4
    [warning] = answered.warnings
    assert words in warning


@pytest.mark.parametrize("kind", ["vector", "scalar"])
@pytest.mark.parametrize(
    ("off", "date", "words"),
    [
        (0.0, None, ""),
        (-89.0, 29.0, ""),
        (-180.0, 0.0, "the answer is 120 s behind our clock"),
        (86400.0, None, "the answer is 86400 s ahead of our clock"),
        (0.0, -105.0, "the answer is 45 s behind our clock"),
        (0.0, 45.0, "the answer is 45 s ahead of our clock"),
    ],
)
def test_an_answer_of_another_time_is_doubtful(kind: str, off: float, date: float | None, words: str) -> None:
    made = body("4", at=AT + off) if kind == "vector" else result("scalar", [AT + off, "4"])
    answered = outcome(200, json.dumps(made).encode(), Moment(AT - 60, AT, None if date is None else AT + date))
    assert isinstance(answered, QueryAnswer)
    assert answered.highest == 4
    assert " ".join(answered.warnings).startswith(words)
    assert bool(answered.warnings) is bool(words)
