"""The HPAs of one cycle: which are opted in, which queries they have, and which to give back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from hpa_scaler.app.sighting import Fleet
from hpa_scaler.decide.cycle import asked_of, questions
from hpa_scaler.decide.policy import Asked
from hpa_scaler.decide.writing import restoration, state_of
from hpa_scaler.spec.annotations import STATE, enabled, name_of
from hpa_scaler.spec.queries import Query
from hpa_scaler.spec.rules import Rules
from hpa_scaler.write.applying import Return
from hpa_scaler.write.memory import Memory
from tightship.core.objects import HorizontalPodAutoscaler


class Seen(Struct, frozen=True):
    """The HPAs of a cycle: those opted in, with what they ask for (by uid), and others that may have to be given back.

    *passed_over* counts those that are not opted in, by namespace. *problems* are unreadable HPAs. *queries* are all
    queries, each once; *asks* are those of each HPA, by uid. *now* is when all of this was read.
    """

    asked: Mapping[str, Asked]
    opted_in: tuple[HorizontalPodAutoscaler, ...]
    others: tuple[HorizontalPodAutoscaler, ...]
    passed_over: Mapping[str, int]
    problems: tuple[str, ...]
    asks: Mapping[str, tuple[Query, ...]]
    queries: tuple[Query, ...]
    now: float


def look_at_fleet(fleet: Fleet, defaults: Mapping[str, str], rules: Rules, now: float, memory: Memory) -> Seen:
    """Return the HPAs of *fleet* that matter; the others are not kept."""
    prefix, state = rules.prefix, name_of(rules.prefix, STATE)
    opted_in, others = [], []
    passed_over: Counter[str] = Counter()
    for hpa in fleet.hpas:
        if enabled(hpa.annotations, prefix):
            opted_in.append(hpa)
            continue
        passed_over[hpa.namespace] += 1
        if hpa.uid in memory or state in hpa.annotations:
            others.append(hpa)
    asked = {hpa.uid: asked_of(hpa, prefix, defaults) for hpa in opted_in}
    asks = {uid: questions([each], rules) for uid, each in asked.items()}
    return Seen(
        asked=asked,
        opted_in=tuple(opted_in),
        others=tuple(others),
        passed_over=passed_over,
        problems=fleet.problems,
        asks=asks,
        queries=tuple(dict.fromkeys(query for each in asks.values() for query in each)),
        now=now,
    )


def returns_of(seen: Seen, rules: Rules, memory: Memory) -> tuple[Return, ...]:
    """Return the HPAs to give back; an HPA with nothing of ours is forgotten."""
    found = []
    for hpa in seen.others:
        history = memory.recall(hpa) or state_of(hpa, rules.prefix)[0].history
        given = restoration(hpa, history, rules, seen.now)
        if given is None:
            memory.forget(hpa.uid)
        else:
            found.append(Return(hpa, history, given))
    return tuple(found)


__all__ = ["Seen", "look_at_fleet", "returns_of"]
