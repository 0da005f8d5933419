"""What documents say of advice: what each change would gain, and how to make it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent

import msgspec
from msgspec import Struct

from tightship.documents.money import money
from tightship.documents.presentation import LABEL as INDENT
from tightship.documents.presentation import TextLine, figure
from tightship.documents.terminal import Terminal
from tightship.objects.counting import counted

SHOWN = 10
"""Most pieces of advice that a table has; documents and pages have all."""

CHOICES_SHOWN = 3
"""Most alternatives that a piece of advice lists."""

IN_SUMMARY, HOW_IN_SUMMARY = 5, 1
"""Pieces of advice that a summary has if it cites no more, and how many of them with their commands."""

SUMMARY_COLUMNS = 80
"""The width to which a summary cuts names, so that each piece without its commands is a line."""


class GainEntry(Struct, frozen=True, rename="camel"):
    """How many more *nodes* would go, and what they cost in a month; ``null`` if no node has a price."""

    nodes: int
    micros_per_month: int | None


class ChangeEntry(Struct, frozen=True, rename="camel"):
    """One change to one *thing* behind *reason*. *note* is what whoever makes it has to know, or ``null``."""

    reason: str
    thing: str
    note: str | None


class AdviceEntry(Struct, frozen=True, rename="camel"):
    """*changes* that gain something together, and how to make them.

    *commands* change the cluster, in order. *values* is a line of the chart's values that changes the settings,
    ``null`` if none has to change; a comment in it names flags of this command that win over it. *flags* do the same
    for one plan, and are empty if no flags do. *freed* are the nodes that then go besides. *instead_of* is the number
    (from 1) of the advice to which this is an alternative: it gains as much, and adds nothing to it.
    """

    gain: GainEntry
    changes: tuple[ChangeEntry, ...]
    commands: tuple[str, ...]
    values: str | None
    flags: tuple[str, ...]
    freed: tuple[str, ...]
    instead_of: int | None = None


class AdviceSummary(Struct, frozen=True, rename="camel"):
    """Changes that would free nodes, the most money first, each measured by planning again with it.

    *together* is what the changes with the numbers *together_of* (from 1) gain at once: each adds something to those
    before it, and the others do not. Both are empty if no two add up. In *seconds*, *tried* sets of changes were
    planned with, and *untried* were left. *others* are sentences about what only operators or Karpenter should change.
    """

    seconds: float
    tried: int
    untried: int
    changes: tuple[AdviceEntry, ...]
    together: AdviceEntry | None
    together_of: tuple[int, ...]
    others: tuple[str, ...] = ()


class BundleMove(Struct, frozen=True, rename="camel"):
    """A pod, and where it goes once its node is free to go."""

    pod: str
    to: str


class NodeBundle(Struct, frozen=True, rename="camel"):
    """The whole *advice* that frees one node, and the *moves* of its pods then, in *round* of the plan.

    Without a bundle *advice* is ``null``. Then the node goes in a later *round* without any change, or *remains* are
    the blockers (``Reason subject``) that no known change removes, each with what is known of it; *late* says that the
    time ran out before anything was known.
    """

    advice: AdviceEntry | None
    round: int
    moves: tuple[BundleMove, ...]
    remains: tuple[str, ...]
    late: bool


def gained(gain: GainEntry, currency: str) -> str:
    """Return a gain as people read it: ``+3 nodes, +$412/month``."""
    nodes = f"+{counted(gain.nodes, 'node')}"
    if not gain.micros_per_month:
        return nodes
    month = f"+{money(gain.micros_per_month, currency)}/month"
    return f"{nodes}, {month}" if gain.nodes else f"{month} by dearer nodes"


def advice_lines(summary: AdviceSummary | None, currency: str, *, brief: bool = False) -> Iterator[TextLine]:
    """Yield the advice in lines for people, and what was not tried; *brief* is how a summary has it."""
    if summary is None:
        return
    label = "Advice"
    heads = [number for number, each in enumerate(summary.changes, 1) if each.instead_of is None]
    shown = printed(summary, IN_SUMMARY if brief else SHOWN)
    for number in shown:
        entry = summary.changes[number - 1]
        others = [each for each in summary.changes if each.instead_of == number]
        head = f"{heads.index(number) + 1}. {gained(entry.gain, currency)}   "
        if brief and heads.index(number) >= HOW_IN_SUMMARY:
            yield figure(label, head + _cut(entry, SUMMARY_COLUMNS - INDENT - len(head)), "bold")
            continue
        yield figure(label, head + named(entry), "bold")
        label = ""
        yield from _how(entry)
        for each in others[: 1 if brief else CHOICES_SHOWN]:
            yield TextLine(f"or, for the same: {named(each)}", indent=INDENT + 3, style="bold")
            yield from () if brief else _how(each)
        more = len(others) - (1 if brief else CHOICES_SHOWN)
        if more > 0:
            yield TextLine(f"or {counted(more, 'more choice')} (-o json)", indent=INDENT + 3, style="dim")
    if brief and len(heads) > HOW_IN_SUMMARY:
        left = f"and {len(heads) - len(shown):,} more; " if len(heads) > len(shown) else ""
        yield figure("", f"{left}how to make each change: -o table; as patches: -o patch", "dim")
    for text in _rest(summary, currency, brief=brief):
        yield figure(label, text)
        label = ""


def printed(summary: AdviceSummary, most: int = SHOWN) -> list[int]:
    """Return the numbers (from 1) of the advice to print: *most* without alternatives, and all that are cited."""
    heads = [number for number, each in enumerate(summary.changes, 1) if each.instead_of is None]
    return sorted({*heads[:most], *summary.together_of})


def _how(entry: AdviceEntry) -> Iterator[TextLine]:
    for command in (*entry.commands, *([entry.values] if entry.values else [])):
        # Whoever copies the command gets nothing else.
        yield TextLine(command, indent=INDENT + 3)
    for each in entry.changes:
        if each.note:
            yield TextLine(each.note, "note: ", indent=INDENT + 3, style="dim")


def named(entry: AdviceEntry) -> str:
    """Return the reasons and things of *entry*, with the flags that make the same change for one plan."""
    things = "; ".join(f"{each.reason}: {each.thing}" for each in entry.changes)
    return f"{things} ({' '.join(entry.flags)})" if entry.flags else things


def _cut(entry: AdviceEntry, room: int) -> str:
    """Return the reasons and things of *entry* in *room* columns, as far as names can be cut in the middle."""
    most = (room + 2 - sum(len(each.reason) + 4 for each in entry.changes)) // len(entry.changes)
    cut, replace = Terminal().shorten, msgspec.structs.replace
    changes = [replace(each, thing=cut(each.thing, max(9, most))) for each in entry.changes]
    return named(replace(entry, changes=tuple(changes), flags=()))


def _rest(summary: AdviceSummary, currency: str, *, brief: bool = False) -> Iterator[str]:
    heads = [number for number, each in enumerate(summary.changes, 1) if each.instead_of is None]
    more = len(heads) - len(printed(summary))
    if more > 0 and not brief:
        yield f"{counted(more, 'more change')} in -o json and -o html"
    if total := together(summary, currency):
        yield total
    if not summary.changes and summary.tried and not summary.untried:
        yield f"no known change frees a node ({summary.tried:,} tried)"
    yield from summary.others
    if summary.untried:
        tried = f"{summary.tried:,} tried, {counted(summary.untried, 'other')} not"
        yield f"{tried}: {summary.seconds:g} s were not enough (--advice-time)"


def together(summary: AdviceSummary, currency: str) -> str:
    """Return which pieces gain what at once, empty if no two add up."""
    if summary.together is None:
        return ""
    heads = [number for number, each in enumerate(summary.changes, 1) if each.instead_of is None]
    *some, last = [heads.index(each) + 1 for each in summary.together_of]
    others = "; the others add nothing to them" if len(summary.together_of) < len(heads) else ""
    return f"{', '.join(map(str, some))} and {last} together: {gained(summary.together.gain, currency)}{others}"


def numbered(summary: AdviceSummary) -> Sequence[tuple[int, AdviceEntry]]:
    """Return the pieces with their numbers for people: alternatives of a piece follow it and share its number."""
    heads = [number for number, each in enumerate(summary.changes, 1) if each.instead_of is None]
    order = sorted(enumerate(summary.changes, 1), key=lambda pair: (pair[1].instead_of or pair[0], pair[0]))
    return [(heads.index(each.instead_of or number) + 1, each) for number, each in order]


def bundle_lines(bundle: NodeBundle, currency: str) -> Iterator[TextLine]:
    """Yield what frees one node in lines for people."""
    entry = bundle.advice
    when = f" in round {bundle.round} of a plan --until-stable" if bundle.round > 1 else ""
    if entry is None and when:
        yield TextLine(f"no change is needed: the node goes{when}, once the pods moved before are Ready")
        yield from _moves(bundle)
        return
    if entry is None:
        if bundle.late:
            yield TextLine(
                "not known: the time was over before a change was found that frees this node (--advice-time)"
            )
            return
        yield TextLine("no known change frees this node. Whatever else is changed, this remains:")
        for each in bundle.remains:
            yield TextLine(each, " ", "•")
        return
    many = f"these {len(entry.changes)} changes together free" if len(entry.changes) > 1 else "this change frees"
    if entry.gain.nodes < 1 and (entry.gain.micros_per_month or 0) <= 0:
        # The node takes the room that another one needs.
        yield TextLine(f"nothing gained: {many} the node{when}, and another node stays instead")
        for change in entry.changes:
            yield TextLine(f"{change.reason}: {change.thing}", " ", "•")
        return
    gain = gained(entry.gain, currency) if entry.gain.nodes > 0 else f"{gained(entry.gain, currency)}, another stays"
    yield TextLine(f"{many} the node{when} ({gain}):")
    for change in entry.changes:
        yield TextLine(f"{change.reason}: {change.thing}", " ", "•")
        if change.note:
            yield TextLine(change.note, "note: ", indent=4, style="dim")
    for command in entry.commands:
        yield TextLine(command, indent=4)
    if entry.values:
        yield TextLine(entry.values, indent=4)
    if entry.flags:
        yield TextLine(f"for one plan: {' '.join(entry.flags)}", indent=4, style="dim")
    yield from _moves(bundle)


def _moves(bundle: NodeBundle) -> Iterator[TextLine]:
    if bundle.moves:
        yield TextLine(f"{counted(len(bundle.moves), 'pod moves', 'pods move')} then:")
        for move in bundle.moves:
            yield TextLine(f"{move.pod} to {move.to}", " ", "•")


# -- for git

_KINDS: Mapping[str, tuple[str, str]] = {
    "pdb": ("policy/v1", "PodDisruptionBudget"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "daemonset": ("apps/v1", "DaemonSet"),
    "replicaset": ("apps/v1", "ReplicaSet"),
    "replicationcontroller": ("v1", "ReplicationController"),
    "cronjob": ("batch/v1", "CronJob"),
    "nodepool": ("karpenter.sh/v1", "NodePool"),
    "rollout.argoproj.io": ("argoproj.io/v1alpha1", "Rollout"),
    "cloneset.apps.kruise.io": ("apps.kruise.io/v1alpha1", "CloneSet"),
    "statefulset.apps.kruise.io": ("apps.kruise.io/v1beta1", "StatefulSet"),
}
"""The version and kind of what commands patch."""

_COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:"


def patches(summary: AdviceSummary | None, currency: str) -> str:
    """Return the changes that commands of *summary* make as patches of a Kustomize component, for git: tools that
    deploy from there don't set them back. What is no patch follows as a comment.
    """
    if summary is None or not summary.changes:
        return "# no change is advised\n"
    made: list[str] = []
    left: list[str] = []
    done: set[str] = set()
    for number in printed(summary):
        entry = summary.changes[number - 1]
        notes = [each.note for each in entry.changes if each.note]
        about = [f"  # {line}\n" for line in (f"{gained(entry.gain, currency)}: {named(entry)}", *notes)]
        for command in entry.commands:
            patch = None if command in done else _patch(command)
            if patch is not None:
                made.append(f"{''.join(about)}  - patch: |-\n{indent(patch, '      ')}\n")
                about = []
            elif command not in done:
                left.append(f"# {command}\n")
            done.add(command)
        if entry.values:
            left.append(f"# values of the chart: {entry.values}\n")
    head = f"{_COMPONENT}\n{''.join(made)}" if made else f"{_COMPONENT} []\n"
    return head + ("# and, which is no patch:\n" + "".join(dict.fromkeys(left)) if left else "")


def _patch(command: str) -> str | None:
    """Return the patch that *command* makes, with what it is made in; ``None`` if the command is none of ``patch``."""
    words = shlex.split(command)
    if "patch" not in words or "-p" not in words:
        return None
    at = words.index("patch")
    known = _KINDS.get(words[at + 1])
    if known is None:
        return None
    meta = {"name": words[at + 2], **({"namespace": words[words.index("-n") + 1]} if "-n" in words else {})}
    body = msgspec.json.decode(words[words.index("-p") + 1])
    whole = {"apiVersion": known[0], "kind": known[1], "metadata": meta, **body}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()
