"""Looks at what an HPA scales: one GET, and only where the HPA asks for it."""

from __future__ import annotations

from hpa_scaler.rollout import Rollout, rollout_of
from tightship.kube.connection import Connection
from tightship.kube.errors import Forbidden, KubeError, NotFound, one_line
from tightship.objects import SCALE_TARGET_KINDS, HorizontalPodAutoscaler, ObjectError, decode_scale_target

TIMEOUT = 10.0

_PLURALS = {kind: f"{kind.lower()}s" for kind in SCALE_TARGET_KINDS}


def unknown(hpa: HorizontalPodAutoscaler, why: str) -> Rollout:
    """Return that nothing is known of the rollout of the target of *hpa*, because of *why*."""
    return Rollout("unknown", f"{hpa.target}: {why}")


async def look(connection: Connection, hpa: HorizontalPodAutoscaler) -> Rollout:
    """Return whether the target of *hpa* is rolling out. Never raises what the API server may answer."""
    ref = hpa.target
    if ref.kind not in SCALE_TARGET_KINDS:
        return unknown(hpa, f"rollouts are known of {', '.join(sorted(SCALE_TARGET_KINDS))}")
    path = f"/apis/{ref.api_version or 'apps/v1'}/namespaces/{hpa.namespace}/{_PLURALS[ref.kind]}/{ref.name}"
    try:
        raw = await connection.request("GET", path, timeout=TIMEOUT)
        return rollout_of(decode_scale_target(ref.kind, raw))
    except NotFound:
        return unknown(hpa, "not found")
    except Forbidden as error:
        return unknown(hpa, f"may not be read: {error.message or 'forbidden'}")
    except (KubeError, ObjectError) as error:
        return unknown(hpa, one_line(error))


__all__ = ["look", "unknown"]
