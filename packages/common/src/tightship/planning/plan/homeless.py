"""Why pods of a node find no place: refusals with the smallest change that would make room."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tightship.core.counting import counted
from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.planning.owners import named
from tightship.planning.placement.explain import why_nowhere
from tightship.planning.placement.fitting import Fit
from tightship.planning.placement.space import Ask, Space
from tightship.planning.plan.scale_ups import Guest, is_displaced, needed, needed_by_displaced


class Homeless:
    """Explains what pods lack in *space*, the one of a plan; *without_plan* returns a space with nothing planned."""

    def __init__(self, space: Space, without_plan: Callable[[], Space]) -> None:
        self._space = space
        self._without_plan = without_plan
        self._fitting: dict[Ask, tuple[int, int]] = {}

    def refusals(
        self,
        node: str,
        everyone: Sequence[Guest],
        fit: Fit,
        *,
        planned: int,
        strand: bool,
        explain: bool,
        rivals: Callable[[Guest], Sequence[Guest]],
    ) -> list[Refusal]:
        """Return refusals for those of *everyone* on *node* that have no place after *planned* removals.

        The space still has the node closed and its pods lifted. With *strand*, the scheduler's choices may be to blame.
        *rivals* are the pods that others will move and that take a guest's places.
        """
        found: list[Refusal] = []
        starting = [guest for position in fit.unplaced if (guest := everyone[position]).starting is not None]
        if starting:
            found.append(needed(node, starting))
        displaced: list[Guest] = []
        told: dict[int, tuple[str, str]] = {}
        for position in fit.unplaced:
            guest = everyone[position]
            if guest.starting is not None:
                continue
            if not explain:
                return [*found, Refusal(Reason.NO_PLACE, guest.pod.key)]
            alone = position in fit.alone
            here = () if alone else tuple(filter(is_displaced, everyone))
            first = (guest,) if guest.because else (*rivals(guest), *here)
            if first and position not in fit.astray:
                displaced += first
                continue
            if id(guest.ask) not in told:  # replicas share it
                told[id(guest.ask)] = why_nowhere(self._space, guest.ask)
            detail, fix = told[id(guest.ask)]
            if not guest.origin:
                found.append(_needed_here(node, guest.pod, fix))
            elif position in fit.astray:
                found.append(_astray(self._space, node, guest))
            elif not alone:
                found.append(Refusal(Reason.NO_PLACE_TOGETHER, guest.pod.key, _not_together(guest, everyone)))
            elif planned and self._fits_without_plan(guest, node):
                detail = f"no place is left after {counted(planned, 'planned removal')}: the pod {detail}"
                found.append(Refusal(Reason.NO_PLACE_AFTER_PLAN, guest.pod.key, detail, fix))
            else:
                found.append(Refusal(Reason.NO_PLACE, guest.pod.key, detail, fix))
        found += [needed_by_displaced(node, displaced)] if displaced else []
        if not found and strand:
            detail = (
                "all pods of this node fit elsewhere, but kube-scheduler's own choices could leave one without a place"
            )
            found.append(
                Refusal(Reason.SCHEDULER_MAY_STRAND, node, detail, "accept likely places (--placement likely)")
            )
        return sorted(found)

    def _fits_without_plan(self, guest: Guest, origin: str) -> bool:
        space = self._without_plan()
        node = space.index[origin]
        ask = space.ask(guest.pod)
        if ask.apart:  # what the node holds makes no difference elsewhere
            return self._elsewhere(space, ask, node)
        mark = space.mark()
        space.close(node)
        if guest.origin == origin:
            space.lift(ask, node)
        fits = bool(space.feasible(ask).any())
        space.rollback(mark)
        return fits

    def _elsewhere(self, space: Space, ask: Ask, node: int) -> bool:
        """Whether *ask* fits on another node than *node* in the empty plan's *space*, where nothing ever changes."""
        found = self._fitting.get(ask)
        if found is None:
            nodes = space.feasible(ask).nonzero()[0]
            found = self._fitting[ask] = (len(nodes), int(nodes[0]) if len(nodes) else -1)
        many, first = found
        return many > 1 or (many == 1 and first != node)


def _not_together(guest: Guest, everyone: Sequence[Guest]) -> str:
    others = {claim for each in everyone if each is not guest for claim, _ in each.ask.attachments.shared}
    shared = next((claim for claim, _ in guest.ask.attachments.shared if claim in others), "")
    who = f"the node's {counted(len(everyone), 'pod')} together"
    if shared:
        who = f"surely on one node with all that share claim {shared} (it is attached to one at a time)"
    return f"this pod alone would fit elsewhere, but not {who}"


def _needed_here(node: str, pod: Pod, fix: str) -> Refusal:
    what = f"pending pod {pod.key}"
    if pod.node:
        what = f"pod {pod.key}, which is leaving the draining node {pod.node},"
    if pod.node == node:
        what = f"the replacement of pod {pod.key}, which comes once the pod has gone,"
    return Refusal(Reason.PENDING_POD_NEEDS_NODE, node, f"{what} could run only here", fix)


def _astray(space: Space, node: str, guest: Guest) -> Refusal:
    """Return why kube-scheduler may send *guest* from *node* to a node where it can't run."""
    others = [(label, other) for label, other, mask in space.platforms.others(guest.ask.template) if mask.any()]
    what = " or ".join(other for _, other in others)
    detail = f"kube-scheduler may send {guest.pod.key} to a node of {what}, where the pod is not known to run"
    fix = f"select {' and '.join(dict.fromkeys(label for label, _ in others))} in {named(space.snapshot, guest.pod)}"
    return Refusal(Reason.SCHEDULER_MAY_STRAND, node, detail, fix)


def unjudgeable(guests: Sequence[Guest]) -> list[Refusal]:
    """Return a refusal for each pod whose demands the model of the scheduler can't judge."""
    found = ((guest, guest.ask.unknown) for guest in guests)
    return [Refusal(unknown[0], guest.pod.key, unknown[1]) for guest, unknown in found if unknown is not None]


def stuck_together(pod: Pod, budget: str) -> Refusal:
    """Return why *pod* and others wait for one another: for the PDB *budget* or, without one, for room."""
    if not budget:
        detail = "this pod finds room only after others have left, which may leave only after this pod runs elsewhere"
        return Refusal(Reason.NO_PLACE_TOGETHER, pod.key, detail)
    detail = f"PDB {budget} lets pods go only one after another, and this pod has no place while the others are here"
    return Refusal(Reason.NO_PLACE_TOGETHER, pod.key, detail, f"let PDB {budget} allow all of them at once")
