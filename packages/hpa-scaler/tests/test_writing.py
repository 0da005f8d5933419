"""What is written, and what gives an HPA back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hpa_builder import NO_AGE, NOW, QUERY, HpaCycles, annotated, answer, hpa, judge, spec

from hpa_scaler.annotations.spec import Rules
from hpa_scaler.judge.history import FloorHistory, State, decode_state, encode_state
from hpa_scaler.judge.ownership import Patch, change, remember, restoration, state_of
from hpa_scaler.write.applying import PlannedPatch, send
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.api_errors import NotSent

ASKED = spec(prometheus_query=QUERY, requests_per_replica="10")
ANNOTATION = "/metadata/annotations/tightship.dev~1hpa-scaler-state"


def ops(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body)
    return found


def test_a_change_tests_what_was_judged_before_it_sets_anything() -> None:
    decision = judge(hpa(5), ASKED, 200, rules=NO_AGE)
    patch = change(decision, ASKED, NO_AGE, NOW)
    assert patch.path == "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"
    assert patch.params == {"fieldManager": "hpa-scaler", "fieldValidation": "Strict"}
    raised = ops(change(judge(hpa(5, 10), ASKED, 200, rules=NO_AGE), ASKED, NO_AGE, NOW).body)
    assert raised[3:5] == [
        {"op": "replace", "path": "/spec/minReplicas", "value": 20},
        {"op": "replace", "path": "/spec/maxReplicas", "value": 21},
    ]
    *bounds, annotation = ops(patch.body)
    assert bounds == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/spec/minReplicas", "value": 5},
        {"op": "test", "path": "/spec/maxReplicas", "value": 50},
        {"op": "replace", "path": "/spec/minReplicas", "value": 20},
    ]
    assert (annotation["op"], annotation["path"]) == ("add", ANNOTATION)


def test_the_state_goes_with_the_change() -> None:
    decision = judge(hpa(5), ASKED, 200, rules=NO_AGE)
    state = decode_state(ops(change(decision, ASKED, NO_AGE, NOW).body)[-1]["value"])
    assert (state.target, state.reason) == (20, "FollowsQuery")
    history = state.history
    assert (history.original_min, history.original_max, history.applied_min, history.applied_max) == (5, 50, 20, 50)
    assert history.evaluated == NOW


def test_a_dry_run_asks_the_server_only_for_its_answer() -> None:
    dry = spec(prometheus_query=QUERY, dry_run="true")
    assert change(judge(hpa(5), dry, 20), dry, NO_AGE, NOW).params["dryRun"] == "All"


def test_a_decision_that_changes_nothing_has_no_patch() -> None:
    with pytest.raises(ValueError, match="shop/web: the decision hold changes nothing"):
        change(judge(hpa(5), ASKED, 50), ASKED, NO_AGE, NOW)


def test_the_prefix_of_the_annotation_is_escaped() -> None:
    rules = Rules(prefix="a~b/c", age_query="")
    decision = judge(hpa(5), ASKED, 200, rules=rules)
    assert (
        ops(change(decision, ASKED, rules, NOW).body)[-1]["path"] == "/metadata/annotations/a~0b~1c~1hpa-scaler-state"
    )


def test_what_is_to_be_remembered_can_be_written_alone() -> None:
    asked = spec(prometheus_query=QUERY, requests_per_replica="10", lowering_window="10m")
    decision = judge(hpa(10), asked, 50, rules=NO_AGE)
    assert decision.pending
    before = State(target=10, reason="FollowsQuery")
    *tests, annotation = ops(remember(decision, asked, before, NO_AGE, NOW).body)
    assert [each["op"] for each in tests] == ["test"] * 3
    state = decode_state(annotation["value"])
    assert (state.target, state.reason) == (10, "FollowsQuery")
    assert state.history.floors == decision.history.floors


OLD_STATE = "estafette.io/hpa-scaler-state"


def of_the_older_prefix(world: HpaCycles, *, but: str = "none") -> HorizontalPodAutoscaler:
    """The HPA of *world* after a cycle, with annotations and state of the older prefix, *but* those named."""
    notes = {key.replace("tightship.dev", "estafette.io"): text for key, text in as_written(world).annotations.items()}
    given = {key: text for key, text in notes.items() if but not in key}
    return msgspec.structs.replace(world.hpa, annotations=given)


def test_an_older_hpa_keeps_the_prefix_of_its_state() -> None:
    world = HpaCycles(hpa(5, 10, 5), ASKED)
    world.cycle(250)
    thing = of_the_older_prefix(world)
    decision = judge(thing, ASKED, 300, rules=NO_AGE)
    found = ops(change(decision, ASKED, NO_AGE, NOW).body)
    assert [each["path"] for each in found if each["op"] in ("add", "remove")] == [path_of_note(OLD_STATE)]


def test_the_state_of_a_converted_hpa_moves_to_the_native_prefix() -> None:
    world = HpaCycles(hpa(5, 10, 5), ASKED)
    world.cycle(250)
    older = of_the_older_prefix(world)
    thing = msgspec.structs.replace(older, annotations={**annotated(), OLD_STATE: older.annotations[OLD_STATE]})
    assert state_of(thing, "tightship.dev")[0].history.original_min == 5
    found = ops(change(judge(thing, ASKED, 300, rules=NO_AGE), ASKED, NO_AGE, NOW).body)
    written = [(each["op"], each["path"]) for each in found if each["op"] in ("add", "remove")]
    assert written == [("add", path_of_note("tightship.dev/hpa-scaler-state")), ("remove", path_of_note(OLD_STATE))]


def test_an_older_hpa_that_opts_out_gets_its_bounds_back() -> None:
    world = HpaCycles(hpa(5, 10, 5), ASKED)
    world.cycle(250)
    thing = of_the_older_prefix(world, but="query")
    found = restoration(thing, state_of(thing, "tightship.dev")[0].history, NO_AGE, NOW)
    assert found is not None
    assert (found.minimum, found.maximum) == (5, 10)
    assert ops(found.patch.body)[-1] == {"op": "remove", "path": path_of_note(OLD_STATE)}


def path_of_note(name: str) -> str:
    return f"/metadata/annotations/{name.replace('/', '~1')}"


# Giving back.


def as_written(cycles: HpaCycles) -> HorizontalPodAutoscaler:
    """The HPA with the annotation that its history would be written in."""
    state = State(history=cycles.history, target=1)
    annotations = annotated(state=encode_state(state, cycles.asked, cycles.now))
    return msgspec.structs.replace(cycles.hpa, annotations=annotations)


def test_an_hpa_gets_its_bounds_back_and_loses_the_annotation() -> None:
    cycles = HpaCycles(hpa(5, 10, 5), ASKED)
    cycles.cycle(250)
    assert cycles.bounds == (25, 26)
    thing = as_written(cycles)
    found = restoration(thing, state_of(thing, "tightship.dev")[0].history, NO_AGE, NOW)
    assert found is not None
    assert (found.minimum, found.maximum) == (5, 10)
    assert ops(found.patch.body) == [
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "test", "path": "/spec/minReplicas", "value": 25},
        {"op": "test", "path": "/spec/maxReplicas", "value": 26},
        {"op": "replace", "path": "/spec/minReplicas", "value": 5},
        {"op": "replace", "path": "/spec/maxReplicas", "value": 10},
        {"op": "remove", "path": ANNOTATION},
    ]
    assert found.cause.detail == "minReplicas is 5 and maxReplicas 10 again"


def test_a_bound_that_somebody_changed_stays_theirs() -> None:
    cycles = HpaCycles(hpa(5, 10, 5), ASKED)
    cycles.cycle(250)
    cycles.set(minimum=8)
    found = restoration(as_written(cycles), cycles.history, NO_AGE, NOW)
    assert found is not None
    assert (found.minimum, found.maximum) == (8, 10)
    assert "changed minReplicas from 25 to 8" in found.cause.detail


def test_the_users_floor_never_ends_above_their_maximum() -> None:
    cycles = HpaCycles(hpa(10, 30, 10), ASKED)
    cycles.cycle(250)
    cycles.set(minimum=4, maximum=8)
    cycles.cycle(50)
    cycles.set(maximum=3, minimum=2)
    found = restoration(as_written(cycles), cycles.history, NO_AGE, NOW)
    assert found is not None
    assert found.minimum <= found.maximum


def test_without_its_annotation_an_hpa_is_given_back_from_memory() -> None:
    cycles = HpaCycles(hpa(5, 10, 5), ASKED)
    cycles.cycle(80)
    bare = msgspec.structs.replace(cycles.hpa, annotations={})
    found = restoration(bare, cycles.history, NO_AGE, NOW)
    assert found is not None
    assert [each["op"] for each in ops(found.patch.body)] == ["test", "test", "test", "replace"]
    assert found.minimum == 5


def test_nothing_is_taken_back_where_nothing_was_set() -> None:
    assert restoration(hpa(), FloorHistory(), NO_AGE, NOW) is None
    older = annotated(state='{"enabled":"true","prometheusQuery":"x"}')
    assert restoration(hpa(annotations=older), FloorHistory(), NO_AGE, NOW) is None


def test_an_hpa_that_is_going_is_left_alone() -> None:
    history = FloorHistory(original_min=3, applied_min=5, original_max=50, applied_max=50)
    assert restoration(hpa(5, deletion=3), history, NO_AGE, NOW) is None


def test_a_state_that_can_not_be_read_is_told() -> None:
    state, problem = state_of(hpa(annotations=annotated(state="{")), "tightship.dev")
    assert state == State()
    assert problem.startswith("the state annotation can't be read: ")
    assert state_of(hpa(), "tightship.dev") == (State(), "")


def test_a_restored_hpa_may_be_taken_up_again() -> None:
    cycles = HpaCycles(hpa(5, 10, 5), ASKED)
    cycles.cycle(250)
    found = restoration(as_written(cycles), cycles.history, NO_AGE, NOW)
    assert found is not None
    again = HpaCycles(hpa(found.minimum, found.maximum, 5), ASKED)
    again.cycle(answer(70))
    assert again.history.original_min == 5


@pytest.mark.parametrize("leads", [True, False])
async def test_a_write_is_left_whose_sender_leads_no_longer_when_its_turn_comes(leads: bool) -> None:
    sent: list[str] = []

    class Server:
        async def request(self, verb: str, path: str, *, only_if: Callable[[], bool] | None, **_: object) -> bytes:
            # As a connection asks: once there is a free one.
            if only_if is not None and not only_if():
                raise NotSent(verb, path, "nowhere", "not sent")
            sent.append(path)
            return b"{}"

    async def may() -> bool:
        return True

    connection: Any = Server()
    patch = Patch("/hpa", {}, b"[]", None)
    ended = await send(connection, hpa(5), lambda _: PlannedPatch(patch, None), may, lambda: leads)
    assert (ended.ending, sent) == (("written", ["/hpa"]) if leads else ("left", []))
