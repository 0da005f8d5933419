"""The look of an explanation: the state of each node, its gates, its pods, and the changes that would free it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tightship.documents.advice import bundle_lines
from tightship.documents.amounts import age, cores, memory, percent
from tightship.documents.document import NodeDetail, NodeExplanation, PodEntry, RefusalEntry
from tightship.documents.money import hourly, monthly, origin
from tightship.documents.presentation import (
    Block,
    Column,
    Grid,
    GridShape,
    Printout,
    Style,
    TextLine,
    View,
    warning,
)
from tightship.objects.counting import counted

_SHAPES = (
    GridShape(("PDB allows",)),
    GridShape(("OWNER", "PDB allows")),
    GridShape(("OWNER", "PDB")),
    GridShape(("OWNER", "PDB"), shortest=32),
    GridShape(("OWNER", "PDB", "MEMORY", "OTHER"), shortest=24),
    GridShape(("OWNER", "PDB", "MEMORY", "OTHER", "CPU", "FATE"), shortest=16),
)
"""Shapes of the pods' table. PDBs appear by name, or only by the evictions that they allow."""


def _printout(document: NodeExplanation) -> Printout:
    blocks = [block for node in document.nodes for block in _node(node)]
    return Printout(document.heading, blocks=blocks, end=list(map(warning, document.warnings)))


def _node(node: NodeDetail) -> Iterator[Block]:
    yield Block(f"Node {node.name}", tuple(_about(node)))
    yield Block("Utilization", grid=_utilization(node))
    if node.gates:
        yield Block("Gates", tuple(_gates(node)))
    own = [each for each in node.refusals if each.reason not in {gate.reason for gate in node.gates}]
    if own:
        yield Block("The node itself", [_refusal(each, 2, _other(each, node)) for each in own])
    if node.pods:
        yield Block("", [TextLine(_pods_title(node), style="bold", indent=0)], _pods(node.pods))
    yield Block("Smallest change that would free this node", tuple(_changes(node)))


def _about(node: NodeDetail) -> Iterator[TextLine]:
    def row(label: str, text: str, style: Style = "") -> TextLine:
        return TextLine(text, label.ljust(10), style=style)

    state = "Ready" if node.ready else "not Ready"
    yield row("Decision", _decision(node), "go" if node.decision == "remove" else "why")
    yield row("Pool", node.pool or "(none)")
    yield row("State", f"{state}{', cordoned' if node.cordoned else ''}, {age(node.age_seconds)} old")
    if node.cost is not None:
        cost = node.cost
        yield row(
            "Price", f"{hourly(cost)} an hour, {monthly(cost)} a month; from the {origin(cost.source, cost.basis)}"
        )
    for number, (label, value) in enumerate(node.labels.items()):
        yield row("Labels" if number == 0 else "", f"{label}={value}")
    for number, taint in enumerate(node.taints):
        yield row("Taints" if number == 0 else "", taint)


def _decision(node: NodeDetail) -> str:
    if node.decision == "remove":
        later = f", in round {node.round}" if (node.round or 1) > 1 else ""
        return f"remove #{node.order} of {node.removals}{later}"
    blockers = len(node.refusals) + sum(len(pod.refusals) for pod in node.pods)
    return f"keep: {counted(blockers, 'blocker')}" if blockers else "keep: nothing prevents the removal"


def _utilization(node: NodeDetail) -> Grid:
    known = {"cpuMilli": ("cpu", cores), "memoryBytes": ("memory", memory)}
    names, amounts = [], []
    for key, share in node.utilization.items():
        name, write = known.get(key, (key, lambda amount: f"{amount:,}"))
        names.append(name)
        amounts.append(f"{write(share.requested)} of {write(share.allocatable)}")
    ratios = [share.ratio for share in node.utilization.values()]
    columns = (
        Column("", names),
        Column("", amounts, ">"),
        Column("", list(map(percent, ratios)), ">"),
        Column("", [""] * len(ratios), ratios=ratios),
    )
    return Grid(columns, (GridShape(bar=20),))


def _gates(node: NodeDetail) -> Iterator[TextLine]:
    widest = max(len(gate.name) for gate in node.gates)
    for gate in node.gates:
        text = gate.detail if gate.passed else f"{gate.reason}: {gate.detail}"
        yield TextLine(text, f"  {gate.name.ljust(widest)}  ", "✓" if gate.passed else "✗")


def _refusal(refusal: RefusalEntry, indent: int, subject: str = "") -> TextLine:
    text = f"{subject}: {refusal.detail}" if subject else refusal.detail
    return TextLine(text, word=refusal.reason, indent=indent)


def _other(refusal: RefusalEntry, node: NodeDetail) -> str:
    """Return what the refusal is about if that is not the node, such as a pod that earlier removals bring here."""
    return "" if refusal.subject in (node.name, node.pool) else refusal.subject


def _pods_title(node: NodeDetail) -> str:
    placed = (
        "where they go in the plan"
        if node.decision == "remove"
        else "where they could go if only this node were drained"
    )
    evicted = sum(1 for pod in node.pods if pod.fate == "evict")
    return f"Pods: {evicted} of {len(node.pods)} to evict; {placed}"


def _pods(pods: Sequence[PodEntry]) -> Grid:
    columns = [
        Column("POD", [pod.name for pod in pods]),
        Column("OWNER", [pod.owner or "-" for pod in pods]),
        Column("CPU", [cores(pod.cpu_milli) for pod in pods], ">"),
        Column("MEMORY", [memory(pod.memory_bytes) for pod in pods], ">"),
        Column("FATE", [pod.fate for pod in pods]),
        Column("GOES TO", [_target(pod) for pod in pods], styles=["go" if pod.target else "" for pod in pods]),
    ]
    if any(pod.other for pod in pods):
        asked = [",".join(f"{name}={amount}" for name, amount in pod.other.items()) for pod in pods]
        columns.append(Column("OTHER", [each or "-" for each in asked]))
    if any(pod.budgets for pod in pods):
        named = [", ".join(f"{each.name} (allows {each.allowed})" for each in pod.budgets) for pod in pods]
        allowed = [", ".join(f"allows {each.allowed}" for each in pod.budgets) for pod in pods]
        columns.append(Column("PDB", [each or "-" for each in named]))
        columns.append(Column("PDB", [each or "-" for each in allowed], name="PDB allows"))
    shown_for: dict[tuple[str, str], str] = {}
    return Grid(columns, _SHAPES, below=[_below(pod, shown_for) for pod in pods])


def _below(pod: PodEntry, shown_for: dict[tuple[str, str], str]) -> list[TextLine]:
    """Return the lines below the row of *pod*; *shown_for* has the pod that a refusal was told of at length."""
    lines = [] if pod.anew is None else [TextLine(pod.anew, indent=6)]
    for each in pod.refusals:
        first = shown_for.setdefault((each.reason, each.detail), pod.name)
        same = len(f"as {first}") < len(each.detail) and first != pod.name
        lines.append(TextLine(f"as {first}", word=each.reason, indent=6) if same else _refusal(each, 6))
    return lines


def _target(pod: PodEntry) -> str:
    if pod.target is not None:
        return pod.target
    return {"evict": "no place known", "stays": "(goes with the node)", "leaving": "(is being deleted)"}[pod.fate]


def _changes(node: NodeDetail) -> Iterator[TextLine]:
    if node.decision == "remove":
        yield TextLine(f"nothing: it is removal #{node.order} of the plan")
        return
    if node.bundle is not None:
        yield from bundle_lines(node.bundle, "" if node.cost is None else node.cost.currency)
        return
    if node.without_change:
        # Whatever else were changed would change the cluster for nothing.
        yield TextLine("no small change is known for:")
        for blocker in node.without_change:
            yield TextLine(blocker, " ", "•")
        return
    for change in node.changes:
        reasons = dict.fromkeys(removed.partition(" ")[0] for removed in change.removes)
        count = f" x{len(change.removes)}" if len(change.removes) > 1 else ""
        because = f"{', '.join(reasons)}{count}"
        if change.change.startswith("kubectl "):
            # The command alone is on its lines, so that whoever copies it gets nothing else.
            yield TextLine(f"{because}:", " ", "•")
            yield TextLine(change.change, indent=4)
        else:
            yield TextLine(f"{change.change}  ({because})", " ", "•")


EXPLANATION = View(_printout)
