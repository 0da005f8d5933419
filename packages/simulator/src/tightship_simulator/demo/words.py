"""The night in words: lines as they come, and the summary at its end. Pure."""

from __future__ import annotations

from collections import Counter

from tightship.objects.counting import counted
from tightship_simulator.demo.scene import FLOORS, Line, Scene
from tightship_simulator.demo.story import clock

LASTS = 0.5
"""Seconds. Every new pod is without a node for a moment, of which nothing is said."""


def figures(scene: Scene) -> str:
    """Return what stands in the screen's head."""
    waiting = f" ({scene.waiting} waiting)" if scene.waiting else ""
    return (
        f"{clock(scene.hour)} nodes {scene.began or scene.nodes} -> {scene.nodes}, pods {len(scene.pods)}{waiting}, "
        f"saved {scene.saved:.1f} node-hours, ${scene.money:.2f}"
    )


def line(entry: Line) -> str:
    """Return one entry of the log."""
    if entry.same:
        return f"{clock(entry.hour)} {entry.who} {_floors(entry)}"
    about = " ".join(filter(None, (entry.who, entry.what)))
    return f"{clock(entry.hour)} {about or '*'}{': ' if about and entry.text else ' '}{entry.text}".rstrip()


def _floors(entry: Line) -> str:
    """Return what became of floors, of each once, and why."""
    why = entry.whys[0] if len(entry.whys) == 1 else ", ".join(dict.fromkeys(_reason(each) for each in entry.whys))
    if entry.same != FLOORS:
        return f"holds {entry.what}: {why}"
    moves: dict[str, tuple[int, int]] = {}
    for each in entry.what.split(", "):
        name, _, step = each.partition(" ")
        begin, end = map(int, step.split("→"))
        moves[name] = moves.get(name, (begin, end))[0], end
    ways = {"raises" if end > begin else "lowers" for begin, end in moves.values()}
    named = ", ".join(f"{name} {begin}→{end}" for name, (begin, end) in moves.items())
    return f"{ways.pop() if len(ways) == 1 else 'moves'} {named}: {why}"


def _reason(why: str) -> str:
    return why.partition(":")[0]


class Waiting:
    """Tells since when pods have no node, and since when all have one again, once that has lasted a while."""

    def __init__(self) -> None:
        self._waits = False
        self._since: tuple[float, float] | None = None
        self._most = 0

    def take(self, scene: Scene, now: float) -> tuple[float, str] | None:
        """Return what to say at *now*, in seconds after the beginning, and since when it is so."""
        self._most = max(self._most, scene.waiting)
        if bool(scene.waiting) is self._waits:
            self._since = None
            return None
        if self._since is None:
            self._since = now, scene.hour
        since, hour = self._since
        if now - since < LASTS:
            return None
        self._waits, self._since = not self._waits, None
        if not self._waits:
            return since, f"{clock(hour)} every pod has a node again; {self._most} waited at most"
        self._most = scene.waiting
        apps = Counter(pod.app for pod in scene.pods.values() if pod.waits)
        return since, f"{clock(hour)} pods wait for a node: {', '.join(f'{app} {apps[app]}' for app in sorted(apps))}"


def summary(scene: Scene, *, fast: bool = False) -> list[str]:
    """Return what the night came to, and what to try next; *fast* is whether it was one on virtual time."""
    by = " and ".join(f"{count} by {name}" for name, count in sorted(scene.drained.items())) or "none"
    drained = counted(sum(scene.drained.values()), "node")
    waiting = sum(1 for pod in scene.pods.values() if not pod.ready)
    cordoned = sum(1 for pool in scene.pools.values() for node in pool.nodes if node.cordoned)
    return [
        "",
        f"One night: {counted(scene.began, 'node')} became {scene.fewest}, and {scene.nodes} in the morning.",
        f"  saved      {scene.saved:.1f} node-hours, ${scene.money:.2f} at ${scene.price:g} a node-hour",
        f"  drained    {drained} ({by}); {counted(scene.restored, 'drain')} given back",
        f"  evicted    {counted(sum(scene.evicted.values()), 'pod')}",
        f"  floors     raised {counted(scene.raised, 'time')}, lowered {counted(scene.lowered, 'time')}",
        f"  autoscaler deleted {counted(scene.removed, 'node')} and added {scene.added}",
        f"  pods       {len(scene.pods)}, {waiting} of them not Ready; {counted(cordoned, 'node')} cordoned",
        "",
        "Next:  .venv/bin/node-compactor plan            # your own cluster, read only",
        "       make plan-demo                           # a plan on a generated cluster, with every reason",
        "       make demo                                # the same night as a picture, in 90 seconds"
        if fast
        else "       make demo ARGS='--seed 3 --seconds 180'  # another night, slower",
    ]


__all__ = ["Waiting", "figures", "line", "summary"]
