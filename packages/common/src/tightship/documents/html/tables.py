"""Tables: plain ones, and the listing, whose rows can be searched, selected and opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tightship.documents.html.bars import picture, shape
from tightship.documents.html.fleet import fleet_pictures
from tightship.documents.html.markup import Markup, joined, tag, text
from tightship.documents.html.timeline import chart_picture
from tightship.documents.presentation import Cell, Entry, EntryList, Section, Table


def entry_ids(listing: EntryList | None) -> dict[str, str]:
    """Return the HTML ids of a listing's entries by key. The ids are numbers, because names may hold anything."""
    return {} if listing is None else {key: f"n{number}" for number, key in enumerate(listing.keys)}


def plain_table(table: Table, ids: Mapping[str, str], label: str, role: str) -> Markup:
    """Return *table*, or its text for an empty table.

    *label* is the name for screen readers. Use the role ``group`` for tables of the same name: regions are landmarks.
    """
    if not table.rows:
        return tag("p", table.empty)
    numbers = [isinstance(cell, Cell) and cell.number for cell in table.rows[0]]
    head = joined(
        tag("th", name, scope="col", class_="number" if number else None)
        for name, number in zip(table.columns, numbers, strict=True)
    )
    body = joined(
        tag("tr", *(_cell(cell, ids, filters=table.filters and number == 0) for number, cell in enumerate(row)))
        for row in table.rows
    )
    made = tag(
        "table", tag("thead", tag("tr", head)), tag("tbody", body), class_="plain compact" if table.compact else "plain"
    )
    return tag("div", made, class_="scroll", role=role, aria_label=label, tabindex=0)


def listing_table(listing: EntryList, ids: Mapping[str, str]) -> Iterator[Markup]:
    """Return *listing* as one table in parts, each entry's details in its last cell."""
    yield Markup("<section>")
    yield tag("h2", listing.heading, id="list", tabindex=-1)
    yield tag("p", listing.note) if listing.note else Markup("")
    yield _legend(listing)
    if listing.keys:
        yield Markup(f'<table class="listing of{len(listing.columns)}" aria-labelledby="list" data-noun="')
        yield text(listing.noun)
        yield Markup('">')
        yield tag("thead", tag("tr", *(tag("th", name, scope="col") for name in listing.columns)))
        yield Markup("<tbody>\n")
        for entry in listing.rows():
            yield _entry(entry, listing.columns, ids)
            yield Markup("\n")
        yield Markup("</tbody></table>")
    else:
        yield tag("p", listing.empty)
    yield Markup("</section>")


def _legend(listing: EntryList) -> Markup:
    if not listing.legend:
        return Markup("")
    items = (
        tag("li", tag("svg", shape(kind, 9, 13), width=18, height=28, aria_hidden="true"), name)
        for kind, name in listing.legend
    )
    return tag("ul", *items, class_="legend")


def _entry(entry: Entry, columns: tuple[str, ...], ids: Mapping[str, str]) -> Markup:
    first, *others = entry.cells
    own = ids[entry.key]
    name = tag("a", first.text, href=f"#{own}", class_="name")
    cells = [tag("th", name, _detail(first), scope="row")]
    cells += [
        tag("td", *_content(cell, ids), **_classes(cell), data_label=label)
        for cell, label in zip(others, columns[1:-1], strict=True)
    ]
    summary = entry.summary
    if entry.details:
        inside = joined(section_of(each, ids, "h3") for each in entry.details)
        content = tag("details", tag("summary", summary.text, **_classes(summary)), inside, open=entry.opened)
    else:
        content = tag("span", summary.text, **_classes(summary))
    cells.append(tag("td", content, class_="more"))
    return tag("tr", *cells, id=own, data_state=entry.state, data_tags=" ".join(entry.tags) or None)


def section_of(section: Section, ids: Mapping[str, str], heading: str, role: str = "group") -> Markup:
    """Return the contents of *section*, with its title as the element *heading*."""
    parts = (
        tag(heading, section.heading),
        tag("p", section.note) if section.note else "",
        "" if section.fleet is None else fleet_pictures(section.fleet, ids),
        "" if section.chart is None else chart_picture(section.chart),
        "" if section.table is None else plain_table(section.table, ids, section.heading, role),
    )
    return joined(parts)


def _cell(cell: Cell | str, ids: Mapping[str, str], *, filters: bool = False) -> Markup:
    if isinstance(cell, str):
        return tag("td", cell)
    if filters:
        chip = tag("button", cell.text, type="button", class_="filter", data_tag=cell.text, aria_pressed="false")
        return tag("td", chip, _detail(cell), id=cell.anchor or None)
    return tag("td", *_content(cell, ids), **_classes(cell), id=cell.anchor or None)


def _content(cell: Cell, ids: Mapping[str, str]) -> tuple[str, ...]:
    target = ids.get(cell.to)
    shown: str = cell.text
    if target is not None:
        shown = tag("a", cell.text, href=f"#{target}", class_="move" if cell.follows else None)
    elif cell.about:
        shown = tag("a", cell.text, href=f"#{cell.about}")
    drawn = Markup("") if cell.picture is None else picture(cell.picture)
    return (drawn, shown, _detail(cell))


def _detail(cell: Cell) -> Markup:
    lines = tag("ul", *(tag("li", each) for each in cell.lines)) if cell.lines else ""
    return joined((tag("small", cell.detail) if cell.detail else "", lines))


def _classes(cell: Cell) -> dict[str, str | None]:
    return {"class_": " ".join(each for each in (cell.tone, "number" if cell.number else "") if each) or None}
