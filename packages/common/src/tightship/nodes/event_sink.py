"""Reports the events of drains: Events on the node and on evicted pods, and one log line each, in the same words."""

from __future__ import annotations

import logging

from tightship.drain.answers import FATAL, GOING, EvictionAnswer
from tightship.drain.events import DrainEvent, EventKind
from tightship.objects.drain_record import Ending, Phase
from tightship.process.events import EventRecorder, ObjectRef
from tightship.process.logging import log

_log = logging.getLogger("tightship.drain")

_PHASES = {
    Phase.EVICTING: "NodeEvicting",
    Phase.DRAINED: "NodeDrained",
    Phase.RESTORING: "NodeRestoring",
    Phase.BACKOFF: "NodeRestored",
    Phase.YIELDED: "NodeYielded",
}


class Herald:
    """Sends Events and log lines; see :data:`tightship.drain.events.EventSink`."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def __call__(self, news: DrainEvent) -> None:
        """Report *news*."""
        match news.kind:
            case EventKind.CLAIMED:
                self._node(news, "NodeClaimed", "cordoned and tainted the node, which will be drained")
            case EventKind.TAKEN_OVER:
                at = f" in phase {news.before}" if news.before is not None else ""
                self._node(news, "DrainTakenOver", f"this controller continues the drain{at}")
            case EventKind.PHASE:
                self._phase(news)
            case EventKind.EVICTION:
                self._eviction(news)
            case EventKind.ENDED:
                ending = news.ending or Ending.NOT_OURS
                log(_log, logging.INFO, "drain ended", node=news.node.name, op=_op(news), ending=ending.value)
            case EventKind.TROUBLE:
                log(_log, logging.WARNING, "drain: request failed, trying again", node=news.node.name, error=news.text)

    def _phase(self, news: DrainEvent) -> None:
        phase = news.record.phase if news.record is not None else Phase.BACKOFF
        reason = news.because.reason.value if news.because is not None else _PHASES.get(phase, phase.value)
        note = f"{_PHASES.get(phase, phase.value)}"
        if news.because is not None:
            note += f": {news.because.subject}: {news.because.detail}"
        self._node(news, reason, note, warning=news.because is not None)

    def _node(self, news: DrainEvent, reason: str, note: str, *, warning: bool = False) -> None:
        node = news.node
        phase = news.record.phase.value if news.record is not None else ""
        log(
            _log,
            logging.WARNING if warning else logging.INFO,
            note,
            node=node.name,
            op=_op(news),
            phase=phase,
            reason=reason,
        )
        regarding = ObjectRef(kind="Node", name=node.name, uid=node.uid)
        self._events.record(regarding, "Warning" if warning else "Normal", reason, note, "Drain")

    def _eviction(self, news: DrainEvent) -> None:
        pod, answer = news.pod, news.answer
        if pod is None or answer is None:
            return
        going = answer in GOING or answer is EvictionAnswer.GONE
        level = logging.INFO if going else logging.WARNING if answer in FATAL else logging.DEBUG
        log(
            _log, level, "eviction", node=news.node.name, pod=pod.key, op=_op(news), answer=answer.value, text=news.text
        )
        regarding = ObjectRef(kind="Pod", name=pod.name, uid=pod.uid, namespace=pod.namespace)
        if answer is EvictionAnswer.ACCEPTED:
            note = f"evicted from node {news.node.name}, which is being drained"
            self._events.record(regarding, "Normal", "Evicted", note, "Evict")
        elif answer in FATAL:
            self._events.record(regarding, "Warning", FATAL[answer].value, f"can't be evicted: {news.text}", "Evict")


def _op(news: DrainEvent) -> str:
    return news.record.op if news.record is not None else ""
