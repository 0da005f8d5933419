"""Whether another replica comes after one that ends, by what its cache knows and by what the API server says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.nodes.loop import Succession
from tightship.objects import ApiObject, decode
from tightship_testkit.builders import node, pod, snapshot

Json = dict[str, Any]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "own", "uid": "u1", "controller": True}


def replica_set(replicas: int) -> Json:
    meta = {"name": "own", "namespace": "default", "uid": "u1"}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"replicas": replicas}}


def listed(replicas: int) -> list[ApiObject]:
    return [decode("ReplicaSet", msgspec.json.encode(replica_set(replicas)))]


@pytest.mark.parametrize(("known", "now", "comes"), [(1, None, True), (0, None, False), (1, 0, False), (0, 1, True)])
def test_what_the_api_server_says_counts_before_what_the_cache_knows(known: int, now: int | None, comes: bool) -> None:
    own = pod("me", on="n1")
    own["metadata"] |= {"namespace": "default", "ownerReferences": [OWNER]}
    seen = snapshot(node("n1"), own, replica_set(known))
    assert Succession("default", "me").expected(seen, None if now is None else listed(now)) is comes
