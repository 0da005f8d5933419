"""The state that lists and watches feed: snapshots are right after any sequence of changes."""

from cluster_builder import node, one, pod
from hypothesis import given, settings
from hypothesis import strategies as st

from tightship.cluster import ClusterState
from tightship.cluster.state import sum_up
from tightship.objects import ObjectError, Pod


def test_a_change_is_seen_in_the_next_snapshot_and_leaves_the_last_one_alone() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    before = state.snapshot()
    state.upsert("Pod", one(pod("a", "n1", cpu="3")))
    after = state.snapshot()
    assert before.nodes["n1"].usage.requested["cpu"] == 1000
    assert after.nodes["n1"].usage.requested["cpu"] == 3000


def test_a_finished_pod_is_forgotten_and_a_bound_one_leaves_the_queue() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a")))
    assert [each.name for each in state.snapshot().unscheduled] == ["a"]
    state.upsert("Pod", one(pod("a", "n1")))
    assert state.snapshot().unscheduled == ()
    state.upsert("Pod", one(pod("a", "n1", phase="Succeeded")))
    assert state.snapshot().pod_count == 0


def test_an_unreadable_pod_takes_the_place_of_what_was_known_until_it_can_be_read() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    state.mark_unreadable(ObjectError("Pod", "default", "a", "spec: broken"), "n1")
    seen = state.snapshot()
    assert seen.pod_count == 0
    assert [(each.key, each.node) for each in seen.unreadable] == [("default/a", "n1")]
    state.upsert("Pod", one(pod("a", "n1")))
    assert state.snapshot().unreadable == ()


def test_a_list_replaces_everything_of_its_kind() -> None:
    state = ClusterState()
    for name in ("n1", "n2"):
        state.upsert("Node", one(node(name)))
    state.upsert("Pod", one(pod("a", "n1")))
    state.replace("Pod", [one(pod("b", "n2"))])
    state.replace("Node", [one(node("n2"))])
    seen = state.snapshot()
    assert list(seen.nodes) == ["n2"]
    assert [each.name for each in seen.nodes["n2"].pods] == ["b"]


def test_the_snapshot_is_the_same_while_nothing_changes() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    before = state.snapshot()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    assert state.snapshot() is before


def test_whatever_changes_there_is_another_snapshot() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    changes = [
        lambda: state.upsert("Node", one(node("n2"))),
        lambda: state.upsert("Pod", one(pod("a", "n1", cpu="3"))),
        lambda: state.mark_unreadable(ObjectError("Pod", "default", "b", "spec: broken"), "n1"),
        lambda: state.upsert("Pod", one(pod("b", "n1", phase="Succeeded"))),
        lambda: state.delete("Pod", "default", "a"),
        lambda: state.mark_missing("PersistentVolume", "forbidden"),
        lambda: state.replace("Node", [one(node("n1"))]),
    ]
    seen = [state.snapshot()]
    for change in changes:
        change()
        assert state.snapshot() is not seen[-1]
        assert state.snapshot() != seen[-1]
        seen.append(state.snapshot())


def test_what_is_listed_again_as_it_was_stays() -> None:
    state = ClusterState()
    state.upsert("Node", one(node("n1")))
    state.upsert("Pod", one(pod("a", "n1")))
    state.upsert("Pod", one(pod("b")))
    before = state.snapshot()
    state.replace("Node", [one(node("n1"))])
    state.replace("Pod", [one(pod("a", "n1")), one(pod("b"))])
    assert state.snapshot() == before


CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2", "n3", "gone", "listed"]), st.integers(1, 4)),
    max_size=40,
)


@settings(deadline=None)
@given(CHANGES)
def test_sums_never_drift_from_a_recount(changes: list[tuple[str, str, int]]) -> None:
    state, truth = ClusterState(), {}
    for name in ("n1", "n2", "n3"):
        state.upsert("Node", one(node(name)))
    for name, where, cpu in changes:
        if where == "listed":
            state.replace("Pod", list(truth.values()))
        elif where == "gone":
            state.delete("Pod", "default", name)
            truth.pop(name, None)
        else:
            truth[name] = one(pod(name, where, cpu=str(cpu)))
            state.upsert("Pod", truth[name])
        seen = state.snapshot()
        for view in seen.nodes.values():
            here = [each for each in truth.values() if isinstance(each, Pod) and each.node == view.name]
            assert view.usage == sum_up(here)
            assert {each.key for each in view.pods} == {each.key for each in here}
