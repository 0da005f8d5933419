"""The controller of CapacityBuffers inside Cluster Autoscaler: fills in status and template from the spec. Pure.

As upstream's translators (cluster-autoscaler/capacitybuffer/translators): a buffer of a workload gets a PodTemplate in
the image of the newest pod, with all of that pod's spec; of replicas, percentage and limits the smallest counts. The
limits here are of CPU alone.
"""

from __future__ import annotations

import math

from tightship.objects.quantity import milli
from tightship_simulator.life.changes import Change, Create, Json, Look, Patch, finished, key_of, leaving


class BufferController:
    """Looks at all buffers whenever something changes."""

    due = math.inf

    def step(self, look: Look, now: float, at: str) -> list[Change]:
        """Return templates to make or to change, and the status of every buffer."""
        del now, at
        changes: list[Change] = []
        templates = {key_of(each): each for each in look("PodTemplate")}
        for buffer in look("CapacityBuffer"):
            namespace, name = key_of(buffer)
            spec = buffer["spec"]
            if "scalableRef" not in spec:
                continue
            pods = [
                each for each in look("Pod") if key_of(each)[0] == namespace and _of(each, spec["scalableRef"]["name"])
            ]
            newest = max(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], key_of(pod)), default=None)
            key = namespace, f"capacitybuffer-{name}-pod-template"
            if newest is not None:
                changes += _templated(templates.get(key), key, newest)
            elif key not in templates:
                continue
            one = (newest or {"spec": templates[key]["template"]["spec"]})["spec"]
            status = {"replicas": _number(spec, len(pods), one), "podTemplateRef": {"name": key[1]}}
            status["provisioningStrategy"] = spec.get("provisioningStrategy") or "buffer.x-k8s.io/active-capacity"
            known = buffer.get("status") or {}
            if any(known.get(field) != value for field, value in status.items()):
                changes.append(Patch(buffer, {"status": status}, status=True))
        return changes


def _of(pod: Json, workload: str) -> bool:
    return (pod["metadata"].get("labels") or {}).get("app") == workload and not (leaving(pod) or finished(pod))


def _templated(known: Json | None, key: tuple[str, str], pod: Json) -> list[Change]:
    made = {"metadata": {"labels": pod["metadata"].get("labels") or {}}, "spec": pod["spec"]}
    if known is None:
        meta = {"namespace": key[0], "name": key[1]}
        return [Create({"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, "template": made})]
    return [] if known["template"] == made else [Patch(known, {"template": made})]


def _number(spec: Json, existing: int, pod: Json) -> int:
    found = [int(spec["replicas"])] if "replicas" in spec else []
    if "percentage" in spec:
        found.append(int(spec["percentage"]) * existing // 100)
    if limit := (spec.get("limits") or {}).get("cpu"):
        found.append(milli(limit) // sum(milli(each["resources"]["requests"]["cpu"]) for each in pod["containers"]))
    return max(0, min(found, default=0))


__all__ = ["BufferController"]
