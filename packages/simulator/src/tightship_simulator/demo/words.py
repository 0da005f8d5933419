"""The night in words: lines as they come, and the summary at its end. Pure."""

from __future__ import annotations

from tightship_simulator.demo.scene import Line, Scene
from tightship_simulator.demo.story import clock


def figures(scene: Scene) -> str:
    """Return what stands in the screen's head."""
    waiting = f" ({scene.waiting} waiting)" if scene.waiting else ""
    return (
        f"{clock(scene.hour)} nodes {scene.began or scene.nodes} -> {scene.nodes}, pods {len(scene.pods)}{waiting}, "
        f"saved {scene.saved:.1f} node-hours, ${scene.money:.2f}"
    )


def line(entry: Line) -> str:
    """Return one entry of the log."""
    about = " ".join(filter(None, (entry.who, entry.what)))
    return f"{clock(entry.hour)} {about or '*'}{': ' if about and entry.text else ' '}{entry.text}".rstrip()


def summary(scene: Scene) -> list[str]:
    """Return what the night came to, and what to try next."""
    by = " and ".join(f"{count} by {name}" for name, count in sorted(scene.drained.items())) or "none"
    waiting = sum(1 for pod in scene.pods.values() if not pod.ready)
    cordoned = sum(1 for pool in scene.pools.values() for node in pool.nodes if node.cordoned)
    return [
        "",
        f"One night: {scene.began} nodes became {scene.fewest}, and {scene.nodes} in the morning.",
        f"  saved      {scene.saved:.1f} node-hours, ${scene.money:.2f} at ${scene.price:g} a node-hour",
        f"  drained    {sum(scene.drained.values())} nodes ({by}); {scene.restored} drains given back",
        f"  evicted    {sum(scene.evicted.values())} pods",
        f"  autoscaler deleted {scene.removed} nodes and added {scene.added}",
        f"  pods       {len(scene.pods)}, {waiting} of them not Ready; {cordoned} nodes cordoned",
        "",
        "Next:  .venv/bin/node-compactor plan            # your own cluster, read only",
        "       make plan-demo                           # a plan on a generated cluster, with every reason",
        "       make demo ARGS='--seed 3 --seconds 180'  # another night, slower",
    ]


__all__ = ["figures", "line", "summary"]
