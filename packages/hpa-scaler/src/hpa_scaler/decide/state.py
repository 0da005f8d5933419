"""The state annotation: the older controller's keys as it wrote them, then ours.

``{"enabled":"true","prometheusQuery":...,"inputs":{...},"target":8,"reason":"FollowsQuery","originalMin":3,...}``: from
``inputs`` anybody can compute ``target`` again; the originals are what is put back; ``history`` is what windows need.
What can't be read counts as absent, and is said so.
"""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct

from hpa_scaler.decide.arithmetic import Inputs
from hpa_scaler.decide.history import Floor, History, Raise, Whole
from hpa_scaler.spec.golang import format_float, quote
from hpa_scaler.spec.spec import QuerySpec, Spec
from tightship.core.times import rfc3339

LONGEST = 2000
"""Bytes: every cycle reads the HPA, and all its annotations together may take 256 KiB."""

_SHORTEST_TEXT = 40


class State(Struct, frozen=True, kw_only=True):
    """The content of the annotation; *inputs*, *target* and *reason* are those of the last change,
    ``None`` before one.
    """

    history: History = History()
    inputs: Inputs | None = None
    target: int | None = None
    reason: str = ""
    known: bool = False
    """Whether it is ours; the older controller's has none of our keys."""


class _Memory(Struct, rename="camel", omit_defaults=True):
    evaluated: Whole | None = None
    floors: tuple[Floor, ...] = ()
    raises: tuple[Raise, ...] = ()
    failures: Whole = 0
    answered: Whole | None = None
    recovering: bool = False
    aged: Whole = 0
    incident: Whole | None = None
    rolling: Whole | None = None
    known: tuple[Floor, ...] = ()
    look: Floor | None = None
    series: tuple[Whole, ...] = ()
    answers: tuple[Floor, ...] = ()
    falling: Whole | None = None
    resets: Whole = 0
    reset_at: Whole = 0


class _Wire(Struct, rename="camel", omit_defaults=True):
    inputs: Inputs | None = None
    target: Whole | None = None
    reason: str = ""
    original_min: Whole | None = None
    original_max: Whole | None = None
    applied: Whole | None = None
    applied_max: Whole | None = None
    history: _Memory | None = None


class StateError(ValueError):
    """An unreadable state annotation."""


def encode_state(state: State, spec: Spec, now: float) -> str:
    """Return the annotation's value: compact JSON of at most :data:`LONGEST` bytes, written at *now*.

    If it would be longer, the texts of the older controller's keys are cut first, since nobody reads them back. Then
    the history becomes coarser, on the safe side.
    """
    history = state.history
    for attempt in (history, _coarse(history, floors=False), _coarse(history, floors=True)):
        ours = _ours(state, attempt)
        room = LONGEST - len(ours.encode())
        text = _seeds(spec, now, room) + ours
        if len(text.encode()) <= LONGEST:
            break
    return text


def decode_state(text: str) -> State:
    """Return the content of the annotation *text*. Raises :class:`StateError`."""
    try:
        wire = msgspec.json.decode(text, type=_Wire)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise StateError(f"the state annotation can't be read: {error}") from error
    memory = wire.history or _Memory()
    history = History(
        evaluated=memory.evaluated,
        floors=memory.floors,
        raises=memory.raises,
        failures=memory.failures,
        answered=memory.answered,
        recovering=memory.recovering,
        aged=memory.aged,
        incident=memory.incident,
        rolling=memory.rolling,
        known=memory.known,
        look=memory.look,
        series=memory.series,
        answers=memory.answers,
        falling=memory.falling,
        original_min=wire.original_min,
        original_max=wire.original_max,
        applied_min=wire.applied,
        applied_max=wire.applied_max,
        resets=memory.resets,
        reset_at=memory.reset_at,
    )
    known = wire.history is not None or history.ours
    return State(history=history, inputs=wire.inputs, target=wire.target, reason=wire.reason, known=known)


def _seeds(spec: Spec, now: float, room: int) -> str:
    """Return the older controller's part, without its closing brace, in at most *room* bytes if that is possible."""
    query = spec.queries[0] if spec.queries else QuerySpec("")
    texts = [query.text, str(query.server)]
    while True:
        parts = {
            "enabled": '"true"',
            "prometheusQuery": quote(texts[0]),
            "requestsPerReplica": format_float(query.per_replica),
            "delta": format_float(query.delta),
            "lastUpdated": f'"{rfc3339(now)}"',
            "prometheusServerUrl": quote(texts[1]),
            "scaleDownMaxRatio": format_float(spec.ratio),
            "enableScaleDownRatioDeploymentChecking": f'"{str(spec.rollout_check).lower()}"',
        }
        text = "{" + ",".join(f'"{key}":{value}' for key, value in parts.items())
        longest = max(range(2), key=lambda number: len(texts[number]))
        if len(text.encode()) <= room or len(texts[longest]) <= _SHORTEST_TEXT:
            return text
        texts[longest] = texts[longest][: len(texts[longest]) * 9 // 10].rstrip("…") + "…"


def _ours(state: State, history: History) -> str:
    memory = _Memory(
        evaluated=_down(history.evaluated),
        floors=history.floors,
        raises=history.raises,
        failures=history.failures,
        answered=None if history.answered is None else math.ceil(history.answered),
        recovering=history.recovering,
        aged=history.aged,
        incident=None if history.incident is None else math.ceil(history.incident),
        rolling=None if history.rolling is None else math.ceil(history.rolling),
        known=history.known,
        look=history.look,
        series=history.series,
        answers=history.answers,
        falling=None if history.falling is None else math.floor(history.falling),
        resets=history.resets,
        reset_at=math.ceil(history.reset_at),
    )
    wire = _Wire(
        inputs=state.inputs,
        target=state.target,
        reason=state.reason,
        original_min=history.original_min,
        original_max=history.original_max,
        applied=history.applied_min,
        applied_max=history.applied_max,
        history=memory,
    )
    return "," + msgspec.json.encode(wire).decode()[1:]


def _down(time: float | None) -> int | None:
    return None if time is None else math.floor(time)


def _coarse(history: History, *, floors: bool) -> History:
    """Return *history* with all raises taken for one now and, with *floors*, all floors for the highest of them.

    So are those of the answers; those of the day, which let a floor go up, are forgotten.
    """
    raises = history.raises
    if raises:
        raises = (Raise(raises[-1].at, sum(each.pods for each in raises)),)
    history = msgspec.structs.replace(history, raises=raises)
    if not floors:
        return history
    return msgspec.structs.replace(
        history, floors=_highest(history.floors), answers=_highest(history.answers), known=(), look=None
    )


def _highest(floors: tuple[Floor, ...]) -> tuple[Floor, ...]:
    return (Floor(floors[-1].at, max(each.floor for each in floors)),) if floors else ()


__all__ = ["LONGEST", "State", "StateError", "decode_state", "encode_state"]
