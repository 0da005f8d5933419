"use strict";
(() => {
  const root = document.documentElement, at = (id) => document.getElementById(id);
  const query = at("query"), state = at("state"), theme = at("theme"), count = at("count"), pick = at("pick");
  const alive = at("alive"), stale = at("stale"), SVG = "http://www.w3.org/2000/svg", LINES = 300;
  root.classList.add("scripted");

  // Rows and what is known of them; made anew when the page was fetched anew.
  let rows = [], words = new Map(), only = null, chosen = null, tags = new Set();
  const nameOf = (row) => row.querySelector(".name").textContent;
  const rowOf = (link) => at(decodeURIComponent(link.hash.slice(1)));
  const gather = () => { rows = [...document.querySelectorAll(".listing > tbody > tr")]; words = new Map(); };
  const textOf = (row) => {
    if (!words.has(row)) words.set(row, row.textContent.toLowerCase());
    return words.get(row);
  };

  // A row names its reasons in its last cell.
  const tagsOf = (row) => row.querySelector(":scope > td:last-child :is(summary, span)")?.textContent.split(", ") ?? [];
  const MOVES = ".moves :is(td:first-child, li) > a";

  const filter = () => {
    if (!query) return;
    const asked = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const has = tags.size ? tagsOf(row) : [];
      const fits = (!only || only.has(row)) && (!state.value || row.dataset.state === state.value)
        && [...tags].every((tag) => has.includes(tag)) && asked.every((word) => textOf(row).includes(word));
      row.hidden = !fits;
      shown += fits;
    }
    const noun = document.querySelector(".listing")?.dataset.noun ?? "entry";
    count.textContent = rows.length ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${noun}s` : "";
    for (const chip of document.querySelectorAll(".filter")) chip.setAttribute("aria-pressed", tags.has(chip.dataset.tag));
    mark("found", shown < rows.length ? rows.filter((row) => !row.hidden) : []);
  };

  // The pictures: which slot is which row, and the other way.
  const slots = (map) => map.slots ??= map.dataset.slots.split(" ");
  const place = (map, slot) => {
    const { pitch, row, height, columns } = map.dataset;
    return [slot % columns * pitch, Math.floor(slot / columns) * row, pitch - Math.max(1, pitch * 0.2), +height];
  };
  const mark = (name, before, after = before) => {
    const sides = { before: new Set(before.map((row) => row.id.slice(1))), after: new Set(after.map((row) => row.id.slice(1))) };
    for (const map of document.querySelectorAll(".map")) {
      const ids = sides[map.dataset.side];
      map.querySelector(`:scope > .${name}`)?.remove();
      const boxes = slots(map).flatMap((id, slot) => {
        if (!ids.has(id)) return [];
        const [x, y, wide, high] = place(map, slot);
        return [`M${x - 1} ${y - 1}h${wide + 2}v${high + 2}h-${wide + 2}z`];
      });
      if (!boxes.length) continue;
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      path.setAttribute("d", boxes.join(""));
      map.append(path);
    }
  };
  const point = (row, side) => {
    for (const map of document.querySelectorAll(`.map[data-side="${side}"]`)) {
      const slot = slots(map).indexOf(row.id.slice(1));
      if (slot < 0) continue;
      const [x, y, wide] = place(map, slot), box = map.getBoundingClientRect();
      const scale = box.width / map.viewBox.baseVal.width, ground = map.closest(".fleet").getBoundingClientRect();
      return [box.left - ground.left + (x + wide / 2) * scale, box.top - ground.top + y * scale];
    }
    return null;
  };
  const lines = (pairs) => {
    document.querySelector(".lines")?.remove();
    const fleet = (pairs[0]?.[0].closest(".plan") ?? document).querySelector(".fleet");
    if (!fleet || !pairs.length) return;
    const drawn = pairs.slice(0, LINES).flatMap(([from, to]) => {
      const begin = point(from, "before"), end = point(to, "after");
      if (!begin || !end) return [];
      const bend = (end[0] - begin[0]) / 3, high = Math.min(begin[1], end[1]) - 26;
      return [`M${begin}C${begin[0] + bend},${high} ${end[0] - bend},${high} ${end}m-3-5l3 5l3-5`];
    });
    const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    svg.setAttribute("class", "lines");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", drawn.join(""));
    svg.append(path);
    fleet.append(svg);
  };

  // Selecting: an entry with all its moves, or one move.
  const unmark = () => {
    for (const each of document.querySelectorAll("tr.chosen, tr.source, tr.target")) each.classList.remove("chosen", "source", "target");
    mark("chosen", []);
    lines([]);
    pick.hidden = true;
  };
  const clear = () => {
    const had = only;
    chosen = only = null;
    unmark();
    if (had) filter();
  };
  const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const button = (name, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = name;
    made.addEventListener("click", act);
    return made;
  };
  const select = (row, move) => {
    unmark();
    chosen = { row, name: nameOf(row), move: move?.textContent };
    row.classList.add("chosen");
    const moves = move ? [move] : [...row.querySelectorAll(MOVES)];
    const others = new Map(moves.map((link) => [rowOf(link), link]).filter(([other]) => other));
    const leaving = row.dataset.state === "go";
    for (const other of others.keys()) other.classList.add(leaving ? "target" : "source");
    move?.closest("tr").classList.add("chosen");
    mark("chosen", ...(leaving ? [[row], [...others.keys()]] : [[...others.keys()], [row]]));
    lines([...others.keys()].map((other) => (leaving ? [row, other] : [other, row])));
    const names = [...others.keys()].slice(0, 3).map(nameOf).join(", ") + (others.size > 3 ? ` and ${others.size - 3} more` : "");
    const told = document.createElement("span");
    told.textContent = move ? `${move.textContent}: ${leaving ? nameOf(row) : names} → ${leaving ? names : nameOf(row)}`
      : !moves.length ? `${nameOf(row)}: no pod moves`
      : leaving ? `${nameOf(row)}: ${plural(moves.length, "pod")} to ${plural(others.size, "node")}: ${names}`
      : `${nameOf(row)}: takes ${plural(moves.length, "pod")} of ${plural(others.size, "node")}: ${names}`;
    const parts = [told];
    if (others.size) parts.push(button("Only these", () => { only = new Set([row, ...others.keys()]); filter(); }));
    parts.push(button("Clear (Esc)", () => { clear(); row.querySelector(".name").focus(); }));
    pick.replaceChildren(...parts);
    pick.hidden = false;
  };
  const reveal = (row) => {
    if (row.hidden) { query.value = ""; state.value = ""; tags.clear(); only = null; filter(); }
    row.scrollIntoView({ block: "center" });
  };

  // Where the page is no secure context there is no clipboard, but a selection can be copied.
  const copy = async (button) => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    const say = (word) => { button.textContent = word; button.ariaLabel = button.ariaLabel.replace(/^\w+/, word); };
    say("Copied");
    setTimeout(() => say("Copy"), 2000);
  };
  // What keeps many nodes is told once, in the part of its team; an opened row shows it too. So are links to reasons.
  document.addEventListener("toggle", (event) => {
    for (const word of event.target.open ? event.target.querySelectorAll(".why > li > b") : []) {
      const told = `td:is([id="${word.textContent}"], [id$="-${word.textContent}"]) a`;
      const about = (word.closest(".plan") ?? document).querySelector(told);
      if (about) word.replaceWith(about.cloneNode(true));
    }
    for (const link of event.target.open ? event.target.querySelectorAll(".why a.shared:not(.told)") : []) {
      const cells = rowOf(link)?.cells, fix = document.createElement("small");
      if (!cells) continue;
      link.classList.add("told");
      link.parentElement.append(`: ${cells[2].textContent}`, fix);
      fix.textContent = cells[3].textContent;
    }
  }, true);
  const reach = () => {
    const place = location.hash ? rowOf(location) : null, part = place?.closest("details");
    if (part) part.open = true;
    if (part) place.scrollIntoView();
  };
  addEventListener("hashchange", reach);

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#'], .filter, .copy");
    const map = event.target.closest(".map");
    if (link?.matches(".copy")) {
      copy(link);
    } else if (link?.matches(".filter")) {
      const tag = link.dataset.tag;
      tags.has(tag) ? tags.delete(tag) : tags.add(tag);
      filter();
    } else if (link?.matches(".name")) {
      event.preventDefault();
      select(link.closest("tr"));
    } else if (link?.matches(MOVES)) {
      event.preventDefault();
      select(link.closest("tr[id]"), link);
    } else if (link && rowOf(link)?.matches(".listing > tbody > tr")) {
      event.preventDefault();
      const row = rowOf(link);
      select(row);
      reveal(row);
      row.querySelector(".name").focus({ preventScroll: true });
    } else if (map) {
      const row = under(map, event);
      if (row) select(row);
    }
  });
  const under = (map, event) => {
    const box = map.getBoundingClientRect(), scale = map.viewBox.baseVal.width / box.width, { pitch, row, columns } = map.dataset;
    const slot = Math.floor((event.clientY - box.top) * scale / row) * columns + Math.floor((event.clientX - box.left) * scale / pitch);
    return at(`n${slots(map)[slot]}`);
  };
  document.addEventListener("pointermove", (event) => {
    const map = event.target.closest?.(".map"), row = map && under(map, event);
    if (!map) return;
    let title = map.querySelector("title");
    if (!title) map.prepend(title = document.createElementNS(SVG, "title"));
    title.textContent = row ? nameOf(row) : "";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && chosen) return clear();
    const row = event.target.matches?.("a.name") && event.target.closest("tr");
    if (!row || !["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
    const shown = rows.filter((each) => !each.hidden), here = shown.indexOf(row);
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: shown.length - 1 }[event.key];
    shown[Math.min(shown.length - 1, Math.max(0, next))].querySelector(".name").focus();
    event.preventDefault();
  });
  const openAll = (open) => { for (const row of rows) if (!row.hidden) for (const each of row.querySelectorAll("details")) each.open = open; };
  at("open")?.addEventListener("click", () => openAll(true));
  at("close")?.addEventListener("click", () => openAll(false));
  query?.addEventListener("input", filter);
  state?.addEventListener("input", filter);
  addEventListener("resize", () => { if (chosen) restore(); });

  const kept = (value) => { try { return value === undefined ? localStorage.getItem("theme") : localStorage.setItem("theme", value); } catch { return null; } };
  const colours = () => { theme.value === "system" ? delete root.dataset.theme : (root.dataset.theme = theme.value); };
  theme.value = ["light", "dark"].includes(kept()) ? kept() : "system";
  theme.addEventListener("input", () => { kept(theme.value); colours(); });
  colours();

  // A page that is served is fetched anew and put in place; the reader's place, filters and selection stay.
  const restore = () => {
    const same = rows.includes(chosen?.row) ? chosen.row : rows.find((each) => nameOf(each) === chosen?.name);
    const row = chosen && same, move = chosen?.move;
    if (row) select(row, move && [...row.querySelectorAll(MOVES)].find((link) => link.textContent === move));
    else clear();
  };
  let swaps = 0;
  for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, () => { swaps += 1; }, { passive: true });
  const swap = (fresh) => {
    const opened = new Set(rows.filter((row) => row.querySelector("details[open]")).map(nameOf));
    const seen = (row) => { const box = row.getBoundingClientRect(); return !row.hidden && box.bottom > 0 && box.top < innerHeight; };
    const held = document.activeElement.closest?.("tr[id]") ?? document.querySelector("tr[id].chosen");
    const top = held && seen(held) ? held : rows.find(seen);
    const anchor = top && { name: nameOf(top), top: top.getBoundingClientRect().top };
    const inside = at("main").contains(document.activeElement) && document.activeElement.closest("tr[id]");
    const focused = inside && nameOf(inside), kept = only && new Set([...only].map(nameOf)), places = scrollY;
    if (!query && fresh.getElementById("query")) return location.reload();  // the first pass has run
    const parts = [...document.querySelectorAll(".team[open] > [id]")].map((each) => each.id);
    for (const id of ["head", "main"]) at(id).replaceWith(document.adoptNode(fresh.getElementById(id)));
    for (const id of parts) if (at(id)) at(id).parentElement.open = true;
    document.title = fresh.title;
    gather();
    only = kept && new Set(rows.filter((row) => kept.has(nameOf(row))));
    for (const row of rows) {
      const name = nameOf(row);
      if (opened.has(name)) for (const each of row.querySelectorAll("details")) each.open = true;
      if (name === focused) row.querySelector(".name").focus({ preventScroll: true });
    }
    filter();
    restore();
    const again = anchor && rows.find((row) => nameOf(row) === anchor.name);
    const settle = () => again ? scrollBy({ top: again.getBoundingClientRect().top - anchor.top, behavior: "instant" })
      : scrollTo({ top: places, behavior: "instant" });
    // Rows get their true heights only as they are seen, over some frames; a reader who moves on is left alone.
    const mine = ++swaps;
    const hold = (frames) => {
      if (mine !== swaps || !frames) return;
      settle();
      requestAnimationFrame(() => hold(frames - 1));
    };
    hold(12);
  };
  let version = "", answered = new Date();
  const fetchAnew = async () => {
    try {
      const answer = await fetch(location.pathname, { headers: version ? { "If-None-Match": version } : {} });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(answer.status);
        const text = await answer.text();
        version = answer.headers.get("ETag") ?? "";
        swap(new DOMParser().parseFromString(text, "text/html"));
      }
      answered = new Date();
      stale.hidden = true;
    } catch {
      stale.textContent = `No answer since ${answered.toLocaleTimeString()}: what you see is old.`;
      stale.hidden = false;
    }
  };
  const every = Number(document.body.dataset.refresh);
  if (every) setInterval(() => { if (alive.checked && !document.hidden) fetchAnew(); }, every * 1000);

  gather();
  filter();
  reach();
  if (rows.length && location.hash) rowOf(location)?.matches(".listing > tbody > tr") && select(rowOf(location));
})();
