"""A judgement in words: the formula with its numbers, and the reasons in order of importance."""

from __future__ import annotations

from collections.abc import Sequence

from hpa_scaler.decide.arithmetic import Inputs, Solution, Term
from hpa_scaler.decide.raising import Limit
from hpa_scaler.spec.golang import format_float
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.reasons import Reason, Refusal


def short(value: float) -> str:
    """Return a number for people: at most five significant digits, no needless exponent."""
    text = f"{value:.5g}"
    return format_float(float(text)) if abs(value) < 1e15 else text


def term_text(term: Term) -> str:
    """Return one query's part of the formula, such as ``ceil(-0.5 + 110.2/20) = 6``."""
    value = "?" if term.value is None else short(term.value)
    delta = "" if term.delta == 0 else f"{short(term.delta)} + "
    result = "?" if term.replicas is None else str(term.replicas)
    return f"ceil({delta}{value}/{short(term.per_replica)}) = {result}"


def formula(inputs: Inputs) -> str:
    """Return the formula of all queries with their numbers, empty if there is none."""
    texts = [term_text(term) for term in inputs.terms]
    return texts[0] if len(texts) == 1 else ", ".join(texts)


def ratio_text(inputs: Inputs, solution: Solution) -> str:
    """Return how the ratio floor is computed, such as ``10 - 2 = 8``."""
    if inputs.replicas is None or solution.by_ratio is None:
        return "replicas unknown"
    return f"{inputs.replicas} - {inputs.replicas - solution.by_ratio} = {solution.by_ratio}"


def follows(inputs: Inputs, solution: Solution, told: Sequence[Refusal] = ()) -> Refusal:
    """Return which of the floors is the largest, and so decides.

    If that is the rule for missing data, its cause is among *told*, the causes that the queries gave.
    """
    floor = solution.unbounded
    if inputs.terms and solution.query == floor:
        by_rule = inputs.substitute == floor and all(term.replicas != floor for term in inputs.terms)
        word = next((cause for cause in told if cause.reason is Reason.MISSING_DATA_POLICY), None)
        return word if by_rule and word is not None else Refusal(Reason.FOLLOWS_QUERY, detail=formula(inputs))
    if solution.by_ratio == floor:
        replicas = counted(inputs.replicas or 0, "replica")
        detail = f"a step down from {replicas} by {short(inputs.ratio)} ends at {floor}"
        return Refusal(Reason.FOLLOWS_RATIO, detail=detail)
    return Refusal(Reason.FOLLOWS_LOWER_BOUND, detail=f"the lower bound is {inputs.lower_bound}")


def caps(inputs: Inputs, solution: Solution) -> list[Refusal]:
    """Return what caps the floor; a floor that is held there anyway is not capped."""
    if max(solution.wanted, solution.target) >= solution.unbounded:
        return []
    detail = f"{solution.unbounded} is wanted"
    if inputs.upper_bound is not None and solution.wanted == inputs.upper_bound:
        return [Refusal(Reason.AT_UPPER_BOUND, detail=f"{detail}, maximum-replicas is {inputs.upper_bound}")]
    why = "is never raised for the ratio" if inputs.raises_maximum else "is kept by max-replicas-policy"
    fix = "raise maxReplicas"
    return [Refusal(Reason.AT_MAX_REPLICAS, detail=f"{detail}, maxReplicas {inputs.own_maximum} {why}", fix=fix)]


def bounds_moved(inputs: Inputs, maximum: int) -> list[Refusal]:
    """Return what happens to the maximum."""
    if maximum > inputs.maximum:
        detail = f"maxReplicas goes from {inputs.maximum} to {maximum}, because the floor would exceed it"
        fix = f"raise maxReplicas ({inputs.own_maximum}) yourself, or set max-replicas-policy: clamp"
        return [Refusal(Reason.MAX_RAISED, detail=detail, fix=fix)]
    if maximum < inputs.maximum:
        return [Refusal(Reason.MAX_TAKEN_BACK, detail=f"maxReplicas goes back from {inputs.maximum} to {maximum}")]
    return []


def lowering_limits(inputs: Inputs, solution: Solution, window: float) -> list[Refusal]:
    """Return what reduces or prevents a step down although nothing holds the floor.

    *window* is how long a wanted floor is kept, in seconds.
    """
    if inputs.held or solution.wanted >= inputs.minimum:
        return []
    found = []
    reached = solution.wanted
    if inputs.window is not None and inputs.window > solution.wanted:
        reached = min(inputs.minimum, inputs.window)
        detail = f"{solution.wanted} is wanted, but {inputs.window} was within the last {format_duration(window)}"
        found.append(Refusal(Reason.LOWERING_WINDOW, detail=detail))
    if reached < inputs.minimum and inputs.minimum - reached <= inputs.band:
        found.append(
            Refusal(Reason.DEADBAND, detail=f"{reached} is within the deadband of {inputs.band} below {inputs.minimum}")
        )
    return found


def raising_limits(wanted: int, steps: Sequence[Limit]) -> list[Refusal]:
    """Return the limits of a step up to *wanted*, the strictest first."""
    return [cause for limit, cause in sorted(steps, key=lambda each: each[0]) if limit < wanted]


__all__ = [
    "bounds_moved",
    "caps",
    "follows",
    "formula",
    "lowering_limits",
    "raising_limits",
    "ratio_text",
    "short",
    "term_text",
]
