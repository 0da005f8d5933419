"""Which annotations to write, by the recorded past: the document, its text and its page.

Replica-hours are for a week, rounded to a tenth; minutes to whole minutes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.older import prefix_of
from hpa_scaler.annotations.parsing import enabled, name_of
from hpa_scaler.annotations.spec import ENABLE
from hpa_scaler.backtest.document import WEEK, WorstMoment, worst_moment
from hpa_scaler.backtest.fitting import Suggestion
from hpa_scaler.backtest.variants import BacktestResult, BacktestSetup
from hpa_scaler.documents.document import FloorHead
from tightship.documents.presentation import (
    Block,
    Cell,
    Column,
    Entry,
    EntryList,
    Fact,
    Page,
    Printout,
    Section,
    Table,
    TextLine,
    View,
    figure,
    warning,
)
from tightship.objects.counting import counted
from tightship.objects.times import rfc3339

Sure = Literal["sure", "fairly sure", "can't tell"]


class SuggestedAnnotation(Struct, frozen=True, rename="camel"):
    """One *annotation* by its whole name, its *value* (``null``: leave it out), and *why* in one sentence."""

    annotation: str
    value: str | None
    why: str


class Replayed(Struct, frozen=True, rename="camel"):
    """What a replay of the past came to."""

    replica_hours_a_week: float
    short_minutes: int
    worst: WorstMoment | None


class HpaSuggestion(Struct, frozen=True, rename="camel"):
    """One HPA: how *sure* the fit is and *why*, the *annotations*, and the replays *before* and *after* them.

    *query* is what they are for; *proposed* says that the HPA has no query yet, and this one was found to answer.
    Without *annotations* the past does not tell. *kubectl* is a command, *values* a patch for a chart that takes
    annotations of its HPA, *kustomize* an entry of a kustomization; ``null`` without annotations.
    """

    namespace: str
    name: str
    target: str
    query: str | None
    proposed: bool
    sure: Sure
    why: str
    per_replica: float | None
    spread: float | None
    annotations: tuple[SuggestedAnnotation, ...]
    before: Replayed | None
    after: Replayed | None
    kubectl: str | None
    values: str | None
    kustomize: str | None

    @property
    def key(self) -> str:
        """The HPA as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FloorSuggestions(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorSuggestions"):
    """Which annotations to write, fitted to the past from *begin* to *end*."""

    begin: str
    end: str
    hpas: tuple[HpaSuggestion, ...]
    warnings: tuple[str, ...]


def suggestions_document(
    head: FloorHead, setup: BacktestSetup, found: Sequence[Suggestion], warnings: Sequence[str]
) -> FloorSuggestions:
    """Return the document of the suggestions *found*."""
    return FloorSuggestions(
        api_version=head.api_version,
        generator=head.generator,
        source=head.source,
        evaluated_at=head.evaluated_at,
        settings=head.settings,
        begin=rfc3339(setup.begin),
        end=rfc3339(setup.end),
        hpas=tuple(_hpa(each, setup) for each in found),
        warnings=tuple(warnings),
    )


def _hpa(found: Suggestion, setup: BacktestSetup) -> HpaSuggestion:
    hpa, fit = found.past.hpa, found.fit
    prefix = prefix_of(hpa.annotations, setup.rules.prefix)
    queries = found.past.yardstick.queries if found.past.yardstick is not None else ()
    annotations = [SuggestedAnnotation(name_of(prefix, each.name), each.text, each.why) for each in found.advice]
    if annotations and not enabled(hpa.annotations, prefix):
        annotations.insert(0, SuggestedAnnotation(f"{prefix}/{ENABLE}", "true", "the HPA is not opted in yet"))
    names = {each.annotation: each.value for each in annotations}
    return HpaSuggestion(
        namespace=hpa.namespace,
        name=hpa.name,
        target=str(hpa.target),
        query=queries[0].text if queries else None,
        proposed=found.past.proposed,
        sure=fit.sure,
        why=found.why or fit.why,
        per_replica=fit.per_replica,
        spread=round(fit.spread, 3) if fit.blocks else None,
        annotations=tuple(annotations),
        before=_replayed(found.before, setup),
        after=_replayed(found.after, setup),
        kubectl=_kubectl(hpa.namespace, hpa.name, names) if names else None,
        values=_values(names) if names else None,
        kustomize=_kustomize(hpa.namespace, hpa.name, names) if names else None,
    )


def _replayed(result: BacktestResult | None, setup: BacktestSetup) -> Replayed | None:
    if result is None:
        return None
    hours = result.replicas / 3600 / max(setup.count * setup.interval / 3600, 1e-9) * WEEK
    return Replayed(round(hours, 1), round(result.short / 60), worst_moment(result.worst))


def _kubectl(namespace: str, name: str, texts: dict[str, str | None]) -> str:
    settings = [f"{key}-" if text is None else f"{key}={text}" for key, text in texts.items()]
    return shlex.join(["kubectl", "-n", namespace, "annotate", "--overwrite", "hpa", name, *settings])


def _lines(texts: dict[str, str | None], indent: str) -> Iterator[str]:
    for key, text in texts.items():
        yield f"{indent}{key}: {'null' if text is None else msgspec.json.encode(text).decode()}"


def _values(texts: dict[str, str | None]) -> str:
    return "\n".join(["autoscaling:", "  annotations:", *_lines(texts, "    ")]) + "\n"


def _kustomize(namespace: str, name: str, texts: dict[str, str | None]) -> str:
    quoted = msgspec.json.encode(name).decode(), msgspec.json.encode(namespace).decode()
    lines = [
        "patches:",
        "  - patch: |-",
        "      apiVersion: autoscaling/v2",
        "      kind: HorizontalPodAutoscaler",
        "      metadata:",
        f"        name: {quoted[0]}",
        f"        namespace: {quoted[1]}",
        "        annotations:",
        *_lines(texts, "          "),
    ]
    return "\n".join(lines) + "\n"


def suggestions_printout(document: FloorSuggestions) -> Printout:
    """Return everything about each HPA, one after the other."""
    suggested = sum(1 for each in document.hpas if each.annotations)
    end = [figure("HPAs", f"{counted(len(document.hpas), 'HPA')}: {suggested} with a suggestion", "bold")]
    blocks = [block for hpa in document.hpas for block in _blocks(hpa)]
    heading = (*document.heading, f"fitted to {document.begin} to {document.end}")
    return Printout(heading, blocks=blocks, end=[*end, *map(warning, document.warnings)])


def _blocks(hpa: HpaSuggestion) -> Iterator[Block]:
    about = [TextLine(hpa.why, word=hpa.sure)]
    if hpa.query is not None:
        about.append(TextLine(f"{hpa.query}{'   (proposed: the HPA has none)' if hpa.proposed else ''}", "query  "))
    for label, each in (("before ", hpa.before), ("after  ", hpa.after)):
        if each is not None:
            about.append(TextLine(_text(each), label))
    yield Block(f"HPA {hpa.key}", tuple(about))
    if not hpa.annotations:
        return
    yield Block(
        "Annotations",
        tuple(
            TextLine(f"{'leave it out' if each.value is None else each.value}   ({each.why})", f"{each.annotation}: ")
            for each in hpa.annotations
        ),
    )
    yield Block("kubectl", (TextLine(hpa.kubectl or "", indent=0),))
    yield Block("Values, for a chart that takes annotations of its HPA here", _yaml(hpa.values))
    yield Block("Kustomize", _yaml(hpa.kustomize))


def _yaml(text: str | None) -> tuple[TextLine, ...]:
    return tuple(TextLine(line.lstrip(), indent=len(line) - len(line.lstrip())) for line in (text or "").splitlines())


def _text(each: Replayed) -> str:
    short = f"{counted(each.short_minutes, 'minute')} short of replicas"
    worst = "" if each.worst is None else f"; worst: {each.worst.ready} for {each.worst.needed} at {each.worst.at}"
    return f"{each.replica_hours_a_week:,.0f} replica-hours a week, {short}{worst}"


def suggestions_columns(document: FloorSuggestions) -> Sequence[Column]:
    """Return the columns with every number."""
    hpas = document.hpas
    return (
        Column("NAMESPACE", [hpa.namespace for hpa in hpas]),
        Column("HPA", [hpa.name for hpa in hpas]),
        Column("SURE", [hpa.sure for hpa in hpas]),
        Column("PER REPLICA", ["-" if hpa.per_replica is None else f"{hpa.per_replica:.4g}" for hpa in hpas], ">"),
        Column("SPREAD", ["-" if hpa.spread is None else f"{hpa.spread:.1%}" for hpa in hpas], ">"),
        Column("BEFORE", ["-" if hpa.before is None else _text(hpa.before) for hpa in hpas]),
        Column("AFTER", ["-" if hpa.after is None else _text(hpa.after) for hpa in hpas]),
        Column("KUBECTL", [hpa.kubectl or "-" for hpa in hpas]),
        Column("WHY", [hpa.why for hpa in hpas], style="why"),
    )


def suggestions_page(document: FloorSuggestions) -> Page:
    """Return the page of *document*."""
    suggested = sum(1 for each in document.hpas if each.annotations)
    return Page(
        title=f"{document.generator.name}: annotations for {counted(len(document.hpas), 'HPA')}",
        subtitle=(*document.heading, f"fitted to {document.begin} to {document.end}"),
        facts=(
            Fact("with a suggestion", f"{suggested}", "good" if suggested else ""),
            Fact("can't tell", f"{len(document.hpas) - suggested}"),
        ),
        alerts=document.warnings,
        listing=EntryList(
            heading="HPAs",
            columns=("HPA", "How sure", "For each replica", "Hours a week", "Minutes short", "To write"),
            keys=tuple(hpa.key for hpa in document.hpas),
            rows=lambda: map(_row, document.hpas),
            states=(("told", "HPAs with a suggestion"), ("untold", "HPAs whose past does not tell")),
            noun="HPA",
            hint="name or target",
            empty="No HPA has a usable past.",
        ),
    )


def _change(hpa: HpaSuggestion, number: Callable[[Replayed], float]) -> str:
    """Return a number before and after the suggestion."""
    return " → ".join(f"{number(each):,.0f}" for each in (hpa.before, hpa.after) if each is not None) or "-"


def _json(thing: object) -> str:
    """Return *thing* in one line of JSON, which YAML takes too: a page does not keep indents."""
    return msgspec.json.encode(thing).decode()


def _row(hpa: HpaSuggestion) -> Entry:
    rows = tuple(
        (each.annotation, "leave it out" if each.value is None else each.value, each.why) for each in hpa.annotations
    )
    replays = tuple(
        (name, _text(each)) for name, each in (("before", hpa.before), ("after", hpa.after)) if each is not None
    )
    sections = [
        Section("Annotations", note=hpa.why, table=Table(("Annotation", "Value", "Why"), rows)),
        Section("Over the past", table=Table(("When", "What"), replays, "not replayed")),
    ]
    if hpa.kubectl is not None:
        texts = {each.annotation: each.value for each in hpa.annotations}
        meta = {"name": hpa.name, "namespace": hpa.namespace, "annotations": texts}
        whole = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta}
        ways = (
            ("kubectl", hpa.kubectl),
            ("values of a chart", _json({"autoscaling": {"annotations": texts}})),
            ("Kustomize", _json({"patches": [{"patch": _json(whole)}]})),
        )
        sections.append(Section("To write them", table=Table(("By", "Text"), ways)))
    return Entry(
        key=hpa.key,
        state="told" if hpa.annotations else "untold",
        cells=(
            Cell(hpa.key, detail=hpa.target),
            Cell(hpa.sure, "good" if hpa.sure == "sure" else "warn" if hpa.annotations else "dim"),
            Cell("-" if hpa.per_replica is None else f"{hpa.per_replica:.4g}", number=True),
            Cell(_change(hpa, lambda each: each.replica_hours_a_week)),
            Cell(_change(hpa, lambda each: each.short_minutes)),
        ),
        summary=Cell("annotations and commands"),
        details=tuple(sections),
        opened=len(rows) > 0,
    )


SUGGESTIONS = View(suggestions_printout, suggestions_columns, suggestions_page)
"""The views of suggestions."""
