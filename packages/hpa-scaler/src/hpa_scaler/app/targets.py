"""Reads the target of an HPA: one GET, and only if the HPA asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from hpa_scaler.spec.rollout import Rollout, rollout_of
from tightship.app.runtime.loop import a_few_at_a_time
from tightship.core.api_errors import Forbidden, KubeError, NotFound, one_line
from tightship.core.objects import SCALE_TARGET_KINDS, HorizontalPodAutoscaler, ObjectError, decode_scale_target
from tightship.kube.connection import Connection

TIMEOUT = 10.0
AT_ONCE = 8
LONGEST = 30.0
"""Seconds for the looks of one cycle."""

_PLURALS = {kind: f"{kind.lower()}s" for kind in SCALE_TARGET_KINDS}


def unknown(hpa: HorizontalPodAutoscaler, why: str) -> Rollout:
    """Return that the rollout state of the target of *hpa* is unknown, because of *why*."""
    return Rollout("unknown", f"{hpa.target}: {why}")


async def look(connection: Connection, hpa: HorizontalPodAutoscaler) -> Rollout:
    """Return whether the target of *hpa* is rolling out. Never raises errors of the API server."""
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


async def look_at(
    connection: Connection, hpas: Iterable[HorizontalPodAutoscaler], seconds: float
) -> dict[str, Rollout]:
    """Return whether the targets of *hpas* are rolling out, by the HPA's key, as far as *seconds* allow."""
    wanted = list(hpas)
    found = {hpa.key: unknown(hpa, "not seen in time") for hpa in wanted}

    async def one(hpa: HorizontalPodAutoscaler) -> None:
        found[hpa.key] = await look(connection, hpa)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await a_few_at_a_time(one, wanted, AT_ONCE)
    return found


__all__ = ["look", "look_at", "unknown"]
