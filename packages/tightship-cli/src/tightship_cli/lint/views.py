"""Findings as a table, SARIF 2.1.0 (OASIS) and JUnit (the schemas of Ant and of Jenkins). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Struct

from tightship.documents.document import Generator, Source
from tightship.documents.presentation import Column, Grid, GridShape, Printout, Style, TextLine
from tightship.objects.counting import counted
from tightship.objects.times import rfc3339
from tightship_cli.lint.rules import LEVELS, RULES, Finding, Level

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_CONTROL = {each: "?" for each in range(32) if each not in (9, 10, 13)}
_STYLES: Mapping[Level, Style] = {"error": "bad", "warning": "why", "note": "dim"}


class LintReport(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of ``tightship lint``: *counts* by level, and every finding."""

    api_version: str = "tightship.dev/v1"
    kind: str = "LintReport"
    generator: Generator
    source: Source
    time: str
    counts: dict[Level, int]
    findings: tuple[Finding, ...]


def report(generator: Generator, source: Source, now: float, findings: Sequence[Finding]) -> LintReport:
    """Return the document of *findings*."""
    tally = Counter(each.level for each in findings)
    counts = {level: tally[level] for level in LEVELS}
    return LintReport(generator=generator, source=source, time=rfc3339(now), counts=counts, findings=tuple(findings))


def at_least(findings: Sequence[Finding], level: str) -> list[Finding]:
    """Return those of *findings* that are as bad as *level* or worse; none for a level that is none."""
    worst = LEVELS[: LEVELS.index(level) + 1] if level in LEVELS else ()
    return [each for each in findings if each.level in worst]


def printout(document: LintReport) -> Printout:
    """Return the table."""
    shown = document.findings
    tally = ", ".join(counted(count, level) for level, count in document.counts.items() if count)
    end = [TextLine(f"{tally or 'nothing'} in {document.source.name}", indent=0, style="bold" if tally else "go")]
    if not shown:
        return Printout(end=end)
    columns = [
        Column("LEVEL", [each.level for each in shown], styles=[_STYLES[each.level] for each in shown]),
        Column("RULE", [each.rule for each in shown], style="why"),
        Column("OBJECT", [each.object for each in shown]),
    ]
    if any(each.file for each in shown):
        columns.append(Column("WHERE", [f"{each.file}:{each.line}" if each.file else "" for each in shown]))
    below = [[TextLine(each.detail), TextLine(each.fix, label="fix: ", label_style="dim")] for each in shown]
    return Printout(grid=Grid(columns, (GridShape(),), below=below), end=end)


def sarif(document: LintReport) -> str:
    """Return the log that code scanning takes: a rule once, a result for each finding."""
    used = sorted({each.rule for each in document.findings})
    rules = [
        {
            "id": rule,
            "name": rule,
            "shortDescription": {"text": RULES[rule].finds},
            "help": {"text": RULES[rule].help},
            "defaultConfiguration": {"level": RULES[rule].level},
        }
        for rule in used
    ]
    driver = {"name": "tightship lint", "version": document.generator.version, "rules": rules}
    results = [_result(each, used.index(each.rule)) for each in document.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    whole = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _result(finding: Finding, index: int) -> dict[str, object]:
    place: dict[str, object] = {
        "logicalLocations": [{"fullyQualifiedName": finding.object, "name": finding.name, "kind": "resource"}]
    }
    if finding.file:
        uri = {"uri": quote(finding.file.removeprefix("./"))}
        place["physicalLocation"] = {"artifactLocation": uri, "region": {"startLine": max(1, finding.line)}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.level,
        "message": {"text": f"{finding.object}: {finding.detail}. Fix: {finding.fix}"},
        "locations": [place],
        "partialFingerprints": {"tightship/v1": f"{finding.rule}:{finding.object}"},
    }


def junit(document: LintReport, fail_on: str) -> str:
    """Return a suite with a case for each finding; those below *fail_on* pass, and a clean input is one that passes."""
    failed = at_least(document.findings, fail_on)
    cases = [_case(each, failed=each in failed) for each in document.findings]
    cases = cases or ['    <testcase classname="tightship.lint" name="nothing found" time="0"/>']
    passed = [f"{each.level} {each.rule} {each.object}: {each.detail}" for each in document.findings]
    output = escape("\n".join(each.translate(_CONTROL) for each in passed))
    name, moment = quoteattr(f"tightship lint {document.source.name}"), document.time.removesuffix("Z")
    counts = f'tests="{len(cases)}" failures="{len(failed)}" errors="0" time="0"'
    suite = f'id="0" package="tightship" name={name} timestamp="{moment}" hostname="localhost" {counts}'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<testsuites>",
        f"  <testsuite {suite}>",
        f'    <properties><property name="version" value={quoteattr(document.generator.version)}/></properties>',
    ]
    lines += [*cases, f"    <system-out>{output}</system-out>", "    <system-err/>", "  </testsuite>", "</testsuites>"]
    return "\n".join(lines) + "\n"


def _case(finding: Finding, *, failed: bool) -> str:
    where = f" ({finding.file}:{finding.line})" if finding.file else ""
    named = f"classname={quoteattr(f'tightship.lint.{finding.rule}')} name={_attribute(finding.object + where)}"
    if not failed:
        return f'    <testcase {named} time="0"/>'
    text = escape(f"{finding.detail}\nfix: {finding.fix}".translate(_CONTROL))
    failure = f"<failure type={quoteattr(finding.level)} message={_attribute(finding.detail)}>{text}</failure>"
    return f'    <testcase {named} time="0">{failure}</testcase>'


def _attribute(text: str) -> str:
    return quoteattr(" ".join(text.translate(_CONTROL).split()))
