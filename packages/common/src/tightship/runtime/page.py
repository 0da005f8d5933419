"""A page for people, made of plain texts: who fills it can't forget to escape, for nothing here takes markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from typing import Literal

from msgspec import Struct

from tightship.report.terminal import clean

Tone = Literal["", "good", "warn", "bad", "dim"]


class Cell(Struct, frozen=True):
    """A text in a table. *number* is set to the right; *detail* stands below in small; *lines* are a list below."""

    text: str
    tone: Tone = ""
    number: bool = False
    detail: str = ""
    lines: tuple[str, ...] = ()


class Table(Struct, frozen=True):
    """Rows under *columns*; *empty* is said where there are none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    empty: str = "none"


class Fact(Struct, frozen=True):
    """A figure at the head of the page, or of a section: *value* large, *name* below it."""

    name: str
    value: str
    tone: Tone = ""


class Section(Struct, frozen=True):
    """A heading with what belongs to it."""

    heading: str
    note: str = ""
    facts: tuple[Fact, ...] = ()
    table: Table | None = None


class Page(Struct, frozen=True):
    """A whole page. *alerts* stand on top of everything; *refresh* is in seconds, 0 for never."""

    title: str
    subtitle: str = ""
    facts: tuple[Fact, ...] = ()
    alerts: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    links: tuple[tuple[str, str], ...] = (("status as JSON", "/status"), ("metrics", "/metrics"))
    refresh: int = 30


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5d6878; --ground: #fbfbfc; --card: #fff; --line: #dfe3e8;
  --good: #17703f; --warn: #8f5a00; --bad: #b3261e; --alert: #fdecea; --accent: #1f5fbf; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b4; --ground: #14181e; --card: #1b2027;
  --line: #303842; --good: #6fd39a; --warn: #f0b95b; --bad: #ff8f86; --alert: #3a1f1e; --accent: #82b1ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 76rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; } h2 { margin: 2.2rem 0 .5rem; font-size: 1.15rem; }
p { margin: .2rem 0 .8rem; color: var(--soft); } a { color: var(--accent); }
.alert { margin: .8rem 0 0; padding: .6rem .9rem; border-left: 4px solid var(--bad); background: var(--alert);
  color: var(--ink); overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: .7rem; margin: 1.1rem 0; }
.fact { min-width: 8.5rem; padding: .6rem .9rem; border: 1px solid var(--line); border-radius: 8px;
  background: var(--card); }
.fact dt { color: var(--soft); font-size: .85rem; }
.fact dd { margin: 0; font-size: 1.3rem; font-weight: 600; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--card); }
table { width: 100%; border-collapse: collapse; }
th, td { padding: .45rem .8rem; text-align: left; vertical-align: top; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
thead th { border-top: 0; color: var(--soft); font-size: .85rem; font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
small, td ul { color: var(--soft); font-size: .87rem; } small { display: block; }
td ul { margin: .1rem 0 0; padding-left: 1.1rem; }
.good { color: var(--good); } .warn { color: var(--warn); } .bad { color: var(--bad); } .dim { color: var(--soft); }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .87rem; } footer a { margin-right: 1rem; }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The header to send with a page: nothing is loaded and nothing runs, even if markup got in."""


def render_page(page: Page) -> str:
    """Return *page* as an HTML document that needs no scripts and no other resource."""
    refresh = f'<meta http-equiv="refresh" content="{page.refresh}">\n' if page.refresh else ""
    alerts = "".join(f'<div class="alert" role="alert">{_text(each)}</div>\n' for each in page.alerts)
    links = "".join(f'<a href="{_text(target)}">{_text(name)}</a>' for name, target in page.links)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{refresh}<title>{_text(page.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{_text(page.title)}</h1>\n{_note(page.subtitle)}{alerts}{_facts(page.facts)}</header>\n<main>\n"
        + "".join(map(_section, page.sections))
        + f"</main>\n<footer>{links}</footer>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    table = "" if section.table is None else _table(section.table)
    head = f"<h2>{_text(section.heading)}</h2>\n{_note(section.note)}"
    return f"<section>\n{head}{_facts(section.facts)}{table}</section>\n"


def _facts(facts: Iterable[Fact]) -> str:
    boxes = "".join(
        f'<div class="fact"><dt>{_text(each.name)}</dt><dd{_class(each.tone)}>{_text(each.value)}</dd></div>\n'
        for each in facts
    )
    return f'<dl class="facts">\n{boxes}</dl>\n' if boxes else ""


def _table(table: Table) -> str:
    if not table.rows:
        return _note(table.empty)
    numbers = [isinstance(cell, Cell) and cell.number for cell in table.rows[0]] + [False] * len(table.columns)
    head = "".join(
        f'<th scope="col"{_class("number" if number else "")}>{_text(name)}</th>'
        for name, number in zip(table.columns, numbers, strict=False)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n'


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return f"<td>{_text(cell)}</td>"
    detail = f"<small>{_text(cell.detail)}</small>" if cell.detail else ""
    lines = "".join(f"<li>{_text(each)}</li>" for each in cell.lines)
    below = f"<ul>{lines}</ul>" if lines else ""
    classes = " ".join(each for each in (cell.tone, "number" if cell.number else "") if each)
    return f"<td{_class(classes)}>{_text(cell.text)}{detail}{below}</td>"


def _note(text: str) -> str:
    return f"<p>{_text(text)}</p>\n" if text else ""


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _text(text: str) -> str:
    return escape(clean(text), quote=True)


__all__ = ["CONTENT_SECURITY_POLICY", "Cell", "Fact", "Page", "Section", "Table", "render_page"]
