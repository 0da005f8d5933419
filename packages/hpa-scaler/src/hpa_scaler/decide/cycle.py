"""One cycle over all HPAs: the queries to send, each HPA's decision, and whether so many may be lowered at once. Pure.

The running controller, ``plan`` and ``explain`` all use this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from hpa_scaler.decide.correlated import DropCount, DropState, Verdict, count_drops, judge_drops, settle
from hpa_scaler.decide.decision_log import cycle_line, decision_line
from hpa_scaler.decide.evidence import evidence_queries, own
from hpa_scaler.decide.history import History, handed_over
from hpa_scaler.decide.policy import Asked, Decision, Subject, decide
from hpa_scaler.decide.state import State
from hpa_scaler.decide.writing import state_of
from hpa_scaler.spec.annotations import enabled, parse_spec
from hpa_scaler.spec.queries import Outcomes, Query, queries_of
from hpa_scaler.spec.rollout import Rollout
from hpa_scaler.spec.rules import Rules
from hpa_scaler.spec.spec import Spec
from tightship.core.objects import HorizontalPodAutoscaler


class Judged(Struct, frozen=True):
    """One HPA's judgement: *first* by itself, *decision* together with the others of the cycle."""

    subject: Subject
    first: Decision
    decision: Decision


class Cycle(Struct, frozen=True):
    """A cycle: the judgement of every HPA, the drops among them, and the verdict on those."""

    judged: tuple[Judged, ...]
    count: DropCount
    verdict: Verdict


def asked_of(hpa: HorizontalPodAutoscaler, prefix: str, defaults: Mapping[str, str] = {}) -> Asked:
    """Return what the annotations of *hpa* ask for, ``None`` if it is not opted in."""
    return parse_spec(hpa.annotations, prefix, defaults) if enabled(hpa.annotations, prefix) else None


def questions(asked: Iterable[Asked], rules: Rules) -> tuple[Query, ...]:
    """Return every query of a cycle, each once."""
    found: dict[Query, None] = {}
    for each in asked:
        if isinstance(each, Spec):
            found |= dict.fromkeys(queries_of(each, rules.age_query, rules.longest_guard))
            found |= dict.fromkeys(evidence_queries(each, rules))
    return tuple(found)


def wants_rollout(asked: Asked) -> bool:
    """Whether the controller has to read the target."""
    return isinstance(asked, Spec) and asked.rollout_check


def subject_of(
    hpa: HorizontalPodAutoscaler,
    asked: Asked,
    *,
    outcomes: Outcomes,
    rollout: Rollout | None,
    rules: Rules,
    now: float,
    remembered: History | None = None,
) -> Subject:
    """Return everything that the judgement of *hpa* depends on; of all *outcomes* only its own.

    *remembered* is what the running controller knows of the HPA; without it the HPA's annotation is read.
    """
    state, problem = (State(), "") if remembered is not None else state_of(hpa, rules.prefix)
    return Subject(
        hpa=hpa,
        asked=asked,
        outcomes=_own(asked, outcomes, rules),
        rollout=rollout,
        history=handed_over(state.history, now, rules.handover_gap) if remembered is None else remembered,
        state_problem=problem,
        rules=rules,
        now=now,
    )


def _own(asked: Asked, outcomes: Outcomes, rules: Rules) -> Outcomes:
    if not isinstance(asked, Spec):
        return {}
    return {query: own(asked, query, outcomes[query]) for query in questions([asked], rules) if query in outcomes}


def judge_cycle(subjects: Iterable[Subject], before: DropState, rules: Rules, now: float) -> Cycle:
    """Return the decisions for all HPAs; *before* is the state of drops after the previous cycle."""
    made = [(subject, decide(subject)) for subject in subjects]
    count = count_drops((decision for _, decision in made), rules)
    verdict = judge_drops(count, before, rules, now)
    return Cycle(tuple(Judged(subject, first, settle(first, verdict, now)) for subject, first in made), count, verdict)


def log_lines(cycle: Cycle, name: str, before: DropState, rules: Rules, now: float) -> list[bytes]:
    """Return the lines of a decision log for *cycle*, which the log calls *name*."""
    lines = [decision_line(name, each.subject, each.decision, cycle.verdict.cause) for each in cycle.judged]
    lines.append(cycle_line(name, now, (each.first for each in cycle.judged), before, rules))
    return lines


__all__ = [
    "Cycle",
    "Judged",
    "asked_of",
    "judge_cycle",
    "log_lines",
    "questions",
    "subject_of",
    "wants_rollout",
]
