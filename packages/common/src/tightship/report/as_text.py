"""The explanation of nodes for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from tightship.core.counting import counted
from tightship.report.amounts import age, cores, memory, percent
from tightship.report.columns import Column, lines, total_width
from tightship.report.document import RefusalEntry, Share
from tightship.report.explanation import NodeDetail, NodeExplanation, PodEntry
from tightship.report.summary import heading, warning_lines
from tightship.report.terminal import Terminal, clean

_BAR = 20
_INDENT = 2


def render_text(document: NodeExplanation, terminal: Terminal) -> str:
    """Return the explanation of each node, one after the other."""
    out = heading(document, terminal) if terminal.headers else []
    for node in document.nodes:
        out += ["", *_node(node, terminal)] if out else list(_node(node, terminal))
    if document.warnings and terminal.headers:
        out += ["", *warning_lines(document.warnings, terminal)]
    return "\n".join(out) + "\n"


def _node(node: NodeDetail, terminal: Terminal) -> Iterator[str]:
    state = "Ready" if node.ready else "not Ready"
    yield terminal.paint(clean(f"Node {node.name}"), "bold")
    yield f"  Decision  {terminal.paint(_decision(node), 'go' if node.decision == 'remove' else 'why')}"
    yield f"  Pool      {clean(node.pool) or '(none)'}"
    yield f"  State     {state}{', cordoned' if node.cordoned else ''}, {age(node.age_seconds)} old"
    for number, (label, value) in enumerate(node.labels.items()):
        yield f"  {'Labels' if number == 0 else '':<9} {clean(f'{label}={value}')}"
    for number, taint in enumerate(node.taints):
        yield f"  {'Taints' if number == 0 else '':<9} {clean(taint)}"
    yield from ("", terminal.paint("Utilization", "bold"))
    yield from lines(_utilization(node, terminal), _bare(terminal), "  ")
    if node.gates:
        yield from ("", terminal.paint("Gates", "bold"))
        yield from _gates(node, terminal)
    own = [each for each in node.refusals if each.reason not in {gate.reason for gate in node.gates}]
    if own:
        yield from ("", terminal.paint("The node itself", "bold"))
        for refusal in own:
            yield from _refusal(refusal, terminal, "  ")
    if node.pods:
        yield ""
        yield from (terminal.paint(line, "bold") for line in terminal.fold(_pods_title(node), ""))
        yield from _pods(node, terminal)
    yield from ("", terminal.paint("Smallest change that would free this node", "bold"))
    yield from _changes(node, terminal)


def _decision(node: NodeDetail) -> str:
    if node.decision == "remove":
        return f"remove #{node.order} of {node.removals}" + (
            f", in round {node.round}" if (node.round or 1) > 1 else ""
        )
    blockers = len(node.refusals) + sum(len(pod.refusals) for pod in node.pods)
    if not blockers:
        return "keep: nothing prevents the removal"
    return f"keep: {counted(blockers, 'blocker')}"


def _bare(terminal: Terminal) -> Terminal:
    return Terminal(terminal.width, terminal.colour, terminal.unicode, headers=False)


def _utilization(node: NodeDetail, terminal: Terminal) -> list[Column]:
    shown = {"cpuMilli": ("cpu", cores), "memoryBytes": ("memory", memory)}
    rows: list[tuple[str, str, Share]] = []
    for key, share in node.utilization.items():
        name, write = shown.get(key, (key, lambda amount: f"{amount:,}"))
        rows.append((clean(name), f"{write(share.requested)} of {write(share.allocatable)}", share))
    return [
        Column("", [name for name, _, _ in rows]),
        Column("", [amounts for _, amounts, _ in rows], ">"),
        Column("", [percent(share.ratio) for _, _, share in rows], ">"),
        Column("", [terminal.bar(share.ratio, _BAR) for _, _, share in rows], styles=["bar"] * len(rows)),
    ]


def _gates(node: NodeDetail, terminal: Terminal) -> Iterator[str]:
    widest = max(len(gate.name) for gate in node.gates)
    for gate in node.gates:
        sign = terminal.sign("✓", "ok") if gate.passed else terminal.sign("✗", "no")
        indent = " " * (2 + len(sign) + 2 + widest + 2)
        text = clean(gate.detail) if gate.passed else f"{gate.reason}: {clean(gate.detail)}"
        first, *rest = terminal.fold(text, indent)
        yield f"  {terminal.paint(sign, 'go' if gate.passed else 'bad')}  {gate.name.ljust(widest)}  {first}"
        yield from (indent + line for line in rest)


def _pods_title(node: NodeDetail) -> str:
    placed = (
        "where they go in the plan"
        if node.decision == "remove"
        else "where they could go if only this node were drained"
    )
    evicted = sum(1 for pod in node.pods if pod.fate == "evict")
    return f"Pods: {evicted} of {len(node.pods)} to evict; {placed}"


def _pods(node: NodeDetail, terminal: Terminal) -> Iterator[str]:
    titled = Terminal(terminal.width, terminal.colour, terminal.unicode)
    table = lines(_fitting(node.pods, titled), titled, "  ")
    yield table[0]
    for line, pod in zip(table[1:], node.pods, strict=True):
        yield line
        for refusal in pod.refusals:
            yield from _refusal(refusal, terminal, "      ")


def _refusal(refusal: RefusalEntry, terminal: Terminal, indent: str) -> Iterator[str]:
    first, *rest = terminal.fold(f"{refusal.reason} {clean(refusal.detail)}", indent)
    yield indent + terminal.paint(refusal.reason, "why") + first.removeprefix(refusal.reason)
    yield from (indent + line for line in rest)


class _Shape(Struct, frozen=True):
    """What a pod's line shows: not the columns *without*; PDBs by name or only what they allow; pods' names whole or
    cut to no less than *shortest_name*.
    """

    without: tuple[str, ...] = ()
    budget_names: bool = True
    shortest_name: int | None = None


_SHAPES = (
    _Shape(),
    _Shape(("owner",)),
    _Shape(("owner",), budget_names=False),
    _Shape(("owner",), budget_names=False, shortest_name=32),
    _Shape(("owner", "memory", "other"), budget_names=False, shortest_name=24),
    _Shape(("owner", "memory", "other", "cpu", "fate"), budget_names=False, shortest_name=16),
)


def _fitting(pods: Sequence[PodEntry], terminal: Terminal) -> list[Column]:
    """Return the columns of the first shape that the terminal has room for, of the last one where none fits."""
    columns: list[Column] = []
    for shape in _SHAPES:
        named = _columns(pods, names=shape.budget_names)
        columns = [column for name, column in named.items() if name not in shape.without]
        missing = total_width(columns) + _INDENT - (terminal.width or 0)
        if terminal.width is None or missing <= 0:
            break
        if shape.shortest_name is not None:
            whole = columns[0].width(headers=True)
            width = max(shape.shortest_name, whole - missing)
            columns[0] = Column("POD", [terminal.shorten(name, width) for name in columns[0].cells])
            if whole - missing >= shape.shortest_name:
                break
    return columns


def _columns(pods: Sequence[PodEntry], *, names: bool) -> dict[str, Column]:
    columns = {
        "pod": Column("POD", [clean(pod.name) for pod in pods]),
        "owner": Column("OWNER", [clean(pod.owner or "-") for pod in pods]),
        "cpu": Column("CPU", [cores(pod.cpu_milli) for pod in pods], ">"),
        "memory": Column("MEMORY", [memory(pod.memory_bytes) for pod in pods], ">"),
        "fate": Column("FATE", [pod.fate for pod in pods]),
        "to": Column("GOES TO", [_target(pod) for pod in pods], styles=["go" if pod.target else "" for pod in pods]),
    }
    if any(pod.other for pod in pods):
        asked = [",".join(f"{clean(name)}={amount}" for name, amount in pod.other.items()) for pod in pods]
        columns["other"] = Column("OTHER", [each or "-" for each in asked])
    if any(pod.budgets for pod in pods):
        columns["pdb"] = Column("PDB", [_budgets(pod, names=names) for pod in pods])
    return columns


def _target(pod: PodEntry) -> str:
    if pod.target is not None:
        return clean(pod.target)
    return {"evict": "no place known", "stays": "(goes with the node)", "leaving": "(is being deleted)"}[pod.fate]


def _budgets(pod: PodEntry, *, names: bool) -> str:
    if names:
        return ", ".join(f"{clean(each.name)} (allows {each.allowed})" for each in pod.budgets) or "-"
    return ", ".join(f"allows {each.allowed}" for each in pod.budgets) or "-"


def _changes(node: NodeDetail, terminal: Terminal) -> Iterator[str]:
    if node.decision == "remove":
        yield f"  nothing: it is removal #{node.order} of the plan"
        return
    for change in node.changes:
        reasons = dict.fromkeys(removed.partition(" ")[0] for removed in change.removes)
        count = f" x{len(change.removes)}" if len(change.removes) > 1 else ""
        yield from _item(f"{clean(change.change)}  ({', '.join(reasons)}{count})", terminal)
    if node.without_change:
        yield "  no small change is known for:"
        for blocker in node.without_change:
            yield from _item(clean(blocker), terminal)


def _item(text: str, terminal: Terminal) -> Iterator[str]:
    first, *rest = terminal.fold(text, "    ")
    yield f"  {terminal.sign('•', '-')} {first}"
    yield from (f"    {line}" for line in rest)
