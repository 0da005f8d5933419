"""What documents say of advice: what each change would gain, and how to make it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from tightship.documents.money import money
from tightship.documents.presentation import LABEL as INDENT
from tightship.documents.presentation import Cell, Section, Table, TextLine, figure
from tightship.objects.counting import counted

SHOWN = 10
"""Most pieces of advice that a table has; documents and pages have all."""


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
    for one plan, and are empty if no flags do. *freed* are the nodes that then go besides.
    """

    gain: GainEntry
    changes: tuple[ChangeEntry, ...]
    commands: tuple[str, ...]
    values: str | None
    flags: tuple[str, ...]
    freed: tuple[str, ...]


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


def advice_lines(summary: AdviceSummary | None, currency: str) -> Iterator[TextLine]:
    """Yield the advice in lines for people, and what was not tried."""
    if summary is None:
        return
    label = "Advice"
    for number, each in enumerate(summary.changes[:SHOWN], 1):
        yield figure(label, f"{number}. {gained(each.gain, currency)}   {named(each)}", "bold")
        yield from _how(each)
        label = ""
    for text in _rest(summary, currency):
        yield figure(label, text)
        label = ""


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


def _rest(summary: AdviceSummary, currency: str) -> Iterator[str]:
    more = len(summary.changes) - SHOWN
    if more > 0:
        yield f"{counted(more, 'more change')} in -o json and -o html"
    if summary.together is not None:
        *some, last = summary.together_of
        numbers = f"{', '.join(map(str, some))} and {last}"
        others = "; the others add nothing to them" if len(summary.together_of) < len(summary.changes) else ""
        yield f"{numbers} together: {gained(summary.together.gain, currency)}{others}"
    if not summary.changes and summary.tried and not summary.untried:
        yield f"no known change frees a node ({summary.tried:,} tried)"
    yield from summary.others
    if summary.untried:
        tried = f"{summary.tried:,} tried, {counted(summary.untried, 'other')} not"
        yield f"{tried}: {summary.seconds:g} s were not enough (--advice-time)"


def advice_section(summary: AdviceSummary | None, currency: str) -> Iterator[Section]:
    """Yield the advice as a section of a page."""
    if summary is None or not (summary.changes or summary.untried or summary.others):
        return
    rows = tuple(
        (
            Cell(f"{number}.", number=True),
            Cell(gained(each.gain, currency)),
            Cell(named(each), lines=tuple(change.note for change in each.changes if change.note)),
            Cell("", lines=(*each.commands, *([each.values] if each.values else []))),
        )
        for number, each in enumerate(summary.changes, 1)
    )
    note = "Each line is what a plan gains with this change alone, measured by planning again. Lines don't add up. "
    rest = [each for each in _rest(summary, currency) if "-o json" not in each]
    yield Section(
        "What would free nodes", note=note + "; ".join(rest), table=Table(("No.", "Gain", "Change", "How"), rows)
    )


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
    instead = entry.gain.nodes < 1  # the node may take the room that another one needs
    gain = "another node stays instead" if instead else gained(entry.gain, currency)
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
