"""Evicts pods: by the eviction subresource, or, only if told to, by deletion in spite of every PodDisruptionBudget."""

from __future__ import annotations

import msgspec

from tightship.core.api_errors import KubeError
from tightship.core.objects import Pod
from tightship.drain.answers import Heard, classify
from tightship.kube.connection import Connection

EVICTION_TIMEOUT = 30.0
"""Seconds: 50 evictions at once under one PDB were answered within 3.4 s, each retried by the server on conflicts."""


async def send_away(connection: Connection, pod: Pod, *, past_budgets: bool) -> Heard:
    """Evict *pod* (delete it, with *past_budgets*) if it still has its UID, and return the answer.

    Never raises for an answer or for a missing one: both are outcomes. The pod keeps its own grace period.
    """
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.uid}}
    try:
        if past_budgets:
            await connection.request("DELETE", path, body=msgspec.json.encode(options), timeout=EVICTION_TIMEOUT)
        else:
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.uid}},
            }
            body = msgspec.json.encode(eviction)
            await connection.request("POST", f"{path}/eviction", body=body, timeout=EVICTION_TIMEOUT)
    except KubeError as error:
        return classify(error)
    return classify(None)
