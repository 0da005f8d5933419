"""How many replicas HPAs are about to start, and what they will need."""

from typing import Any

import msgspec
import pytest
from cluster_builder import node, pod, snapshot
from hpas import NEW, OLD, hpa, replica, replica_set

from tightship.cluster import Snapshot, Starting
from tightship.objects.reasons import Reason
from tightship.planning import demand
from tightship.planning.demand import ReservedDemand, with_starting
from tightship.process.settings.sections import NodeSettings

Json = dict[str, Any]
MANY = 1000


def starting(*things: Json, most: int = MANY) -> list[Starting]:
    return list(with_starting(snapshot([node("a"), *things]), most).starting)


def more(*things: Json, most: int = MANY) -> list[int]:
    return [each.more for each in starting(*things, most=most)]


def two() -> list[Json]:
    return [replica("web-1", "a"), replica("web-2", "a")]


def test_a_floor_above_the_pods_there_are_is_demand_before_the_hpa_controller_has_looked() -> None:
    [found] = starting(hpa(minimum=5), *two())
    assert (found.hpa, found.because, found.wanted, found.existing, found.more) == (
        "default/web",
        "minReplicas",
        5,
        2,
        3,
    )
    assert str(found) == "HPA default/web is about to start 3 more replicas (minReplicas is 5, 2 exist)"


def test_an_hpa_that_scales_up_is_demand() -> None:
    [found] = starting(hpa(desired=3, current=2), *two())
    assert (found.because, found.more, found.count) == ("desiredReplicas", 1, 1)
    assert "1 more replica (" in str(found)


def test_no_more_is_wanted_than_the_maximum() -> None:
    [found] = starting(hpa(minimum=2, desired=50, current=2, maximum=4), *two())
    assert (found.because, found.wanted, found.more) == ("maxReplicas", 4, 2)


def test_there_is_none_when_the_replicas_are_there_whether_they_run_or_wait() -> None:
    waiting = [replica("web-3"), replica("web-4", ready=False)]
    assert more(hpa(minimum=5), *two(), *waiting) == [1], "pending pods hold room by themselves"
    assert more(hpa(minimum=4), *two(), *waiting) == []
    assert more(hpa(minimum=1, desired=2, current=2), *two()) == []


def test_a_pod_that_is_deleted_is_missing_until_its_replacement_is_made() -> None:
    going = replica("web-3", "a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert more(hpa(minimum=3), *two(), going) == [1]
    last = pod("db-1", "a", owner="StatefulSet/db", deletionTimestamp="2026-01-01T00:00:00Z")
    of_set = [pod("db-0", "a", owner="StatefulSet/db"), last]
    assert more(hpa(minimum=2, target="StatefulSet/db"), *of_set) == [], "its replacement comes after it"


def test_while_metrics_fail_the_stale_desired_number_does_not_count_and_the_floor_does() -> None:
    failing: Any = {"AbleToScale": "True", "ScalingActive": ("False", "FailedGetResourceMetric")}
    assert more(hpa(desired=9, current=2, conditions=failing), *two()) == []
    assert more(hpa(minimum=3, desired=9, current=2, conditions=failing), *two()) == [1]
    assert more(hpa(minimum=3, desired=0, current=2, conditions=failing), *two()) == [1]


@pytest.mark.parametrize(
    ("what", "thing"),
    [
        (
            "scaled to zero by someone else",
            hpa(minimum=3, current=0, conditions={"ScalingActive": ("False", "ScalingDisabled")}),
        ),
        ("being deleted", hpa(minimum=5, deletionTimestamp="2026-01-01T00:00:00Z")),
        ("without a target", hpa(minimum=5, conditions={"AbleToScale": ("False", "FailedGetScale")})),
        ("of a dry run only", hpa(minimum=1, annotations={"tightship.dev/hpa-scaler-floor": "9"})),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_an_hpa_that_starts_nothing_is_no_demand(what: str, thing: Json) -> None:
    assert more(thing, *two()) == []


def test_a_conflict_while_scaling_ends_no_demand() -> None:
    refused: Any = {"AbleToScale": ("False", "FailedUpdateScale"), "ScalingActive": "True"}
    assert more(hpa(desired=3, current=2, conditions=refused), *two()) == [1]


def test_pods_are_found_through_their_replica_set_and_without_it_by_its_name() -> None:
    adopted = pod("plain", "a", owner="ReplicaSet/handmade")
    above = replica_set("x")
    above["metadata"]["name"] = "handmade"
    assert more(hpa(minimum=2), adopted, above) == [1]
    assert more(hpa(minimum=3), *two()) == [1], "no ReplicaSet was read"
    # The ReplicaSet says whose it is: one of another controller only looks like the Deployment's.
    assert [each.pod for each in starting(hpa(minimum=3), *two(), replica_set(owner="Rollout/web"))] == [None]


def test_the_pods_of_other_targets_and_namespaces_do_not_count() -> None:
    elsewhere = replica("web-9", "a", namespace="other")
    web_api = replica("api", "a", of="web-api")
    assert more(hpa(minimum=3), *two(), elsewhere, web_api, pod("naked", "a", owner="")) == [1]


def test_replica_sets_and_their_like_are_targets_too() -> None:
    for kind in ("ReplicaSet", "ReplicationController", "StatefulSet"):
        assert more(hpa(minimum=3, target=f"{kind}/web"), pod("w", "a", owner=f"{kind}/web")) == [2], kind


def test_a_target_of_an_unknown_kind_counts_as_far_as_its_hpa_has_yet_to_scale() -> None:
    pods = [pod("job", "a", owner="FlinkDeployment/web")]
    assert more(hpa(minimum=4, desired=4, current=4, target="FlinkDeployment/web"), *pods) == []
    [found] = starting(hpa(minimum=5, desired=4, current=4, target="FlinkDeployment/web"), *pods)
    assert (found.existing, found.more) == (4, 1)
    assert found.pod is not None


def test_a_target_without_pods_is_told_but_nothing_is_known_of_what_it_needs() -> None:
    [found] = starting(hpa(minimum=0, desired=3, current=0))
    assert (found.pod, found.more, found.count) == (None, 3, 0)
    assert more(hpa(minimum=2, desired=2, current=2, target="Foo/web")) == [], "its HPA has nothing left to do"


def test_two_hpas_of_one_target_start_its_replicas_once() -> None:
    [found] = starting(hpa(minimum=3), hpa(minimum=6, name="zweb"), *two())
    assert (found.hpa, found.more) == ("default/zweb", 4)


def test_a_replica_is_taken_to_be_as_the_newest_pod() -> None:
    [found] = starting(hpa(minimum=3), replica("z", "a", cpu="1", created=1), replica("b", "a", cpu="1", created=2))
    assert found.pod is not None
    assert (found.pod.name, found.pod.node, found.pod.phase) == ("b (to come)", "", "Pending")


def test_during_a_rollout_it_has_the_newest_constraints_and_the_largest_amounts() -> None:
    old = replica("old", "a", cpu="3", memory="1Gi", created=1)
    new = replica("new", "a", NEW, cpu="1", memory="2Gi", created=2, nodeSelector={"disk": "fast"})
    [found] = starting(hpa(minimum=4), old, new, replica_set(OLD), replica_set(NEW))
    assert found.pod is not None
    assert found.pod.spec.node_selector == {"disk": "fast"}
    assert (found.pod.requests["cpu"], found.pod.requests["memory"]) == (3000, 2 << 30)
    assert found.existing == 2


def test_a_stateful_sets_replica_brings_its_own_disk_and_shares_the_common_one() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
        {"name": "common", "persistentVolumeClaim": {"claimName": "common"}},
    ]
    [found] = starting(
        hpa(minimum=2, target="StatefulSet/db"), pod("db-0", "a", owner="StatefulSet/db", volumes=volumes)
    )
    assert found.pod is not None
    assert [each.name for each in found.pod.spec.volumes] == ["common"]


def test_room_is_kept_for_so_many_of_each_and_in_all_for_those_of_high_priority_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = [replica("web-1", "a"), replica("api-1", "a", of="api", priority=100)]
    hpas = [hpa(minimum=11), hpa(minimum=11, name="api", target="Deployment/api")]
    assert [(each.hpa, each.count) for each in starting(*hpas, *pods, most=7)] == [
        ("default/api", 7),
        ("default/web", 7),
    ]
    monkeypatch.setattr(demand, "MOST_IN_ALL", 12)
    found = starting(*hpas, *pods, most=100)
    assert [(each.hpa, each.more, each.count) for each in found] == [("default/api", 10, 10), ("default/web", 10, 2)]
    monkeypatch.setattr(demand, "MOST_IN_ALL", 10)
    assert [each.pod is None for each in starting(*hpas, *pods, most=100)] == [False, False], (
        "it is known what they need"
    )
    assert str(found[1]).endswith("(minReplicas is 11, 1 exists, room is kept for 2 of them)")


def test_nothing_is_asked_of_hpas_where_it_is_switched_off() -> None:
    seen = snapshot([node("a"), hpa(minimum=5), *two()])
    assert with_starting(seen, 0) is seen
    assert NodeSettings(scale_up_veto=False).ahead == ReservedDemand(buffers=True, recommended=True)
    assert NodeSettings(disabled_rules=demand.SWITCHABLE).ahead == ReservedDemand()
    assert NodeSettings().ahead == ReservedDemand(100, buffers=True, recommended=True)
    assert NodeSettings(disabled_rules={Reason.BUFFER_NEEDS_NODE}).ahead == ReservedDemand(100, recommended=True)


def test_the_order_of_objects_makes_no_difference() -> None:
    things = [hpa(minimum=5), hpa(minimum=4, name="v"), *two(), replica("web-3", "a", NEW)]

    def made(of: list[Json]) -> Snapshot:
        return with_starting(snapshot([node("a"), *of]), MANY)

    def reported(of: Snapshot) -> list[object]:
        return [msgspec.structs.replace(each, pod=None) for each in of.starting] + [
            each.pod.name for each in of.starting if each.pod is not None
        ]

    assert reported(made(things)) == reported(made(things[::-1]))
