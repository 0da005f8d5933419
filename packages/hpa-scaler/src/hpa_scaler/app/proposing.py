"""Looks for the request rate of HPAs that have no query: asks the usual ones, and takes the first that answers."""

from __future__ import annotations

from collections.abc import Sequence

from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.spec.proposals import proposals
from hpa_scaler.spec.queries import Outcome, QueryAnswer
from hpa_scaler.spec.spec import FloorSpec, QuerySpec
from tightship.core.objects import HorizontalPodAutoscaler

MOST = 100
"""HPAs whose queries are asked for at once."""


async def proposed_specs(
    client: PrometheusClient, hpas: Sequence[HorizontalPodAutoscaler], seconds: float
) -> dict[str, FloorSpec]:
    """Return a spec with a query for each of *hpas* for which one answers above 0, by the HPA's key.

    A hundred HPAs at a time are asked for, within so many *seconds*.
    """
    found: dict[str, FloorSpec] = {}
    for first in range(0, len(hpas), MOST):
        asked = {hpa.key: list(proposals(hpa)) for hpa in hpas[first : first + MOST]}
        queries = dict.fromkeys(query for each in asked.values() for query in each)
        outcomes = await client.ask(queries, seconds)
        for key, tried in asked.items():
            best = next((query for query in tried if _answers(outcomes.get(query))), None)
            if best is not None:
                found[key] = FloorSpec(queries=(QuerySpec(best.text, server=best.server),))
    return found


def _answers(outcome: Outcome | None) -> bool:
    return isinstance(outcome, QueryAnswer) and outcome.highest is not None and outcome.highest > 0
