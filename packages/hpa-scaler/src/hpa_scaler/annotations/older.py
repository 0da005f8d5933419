"""estafette-k8s-hpa-scaler's annotations, beside the native ones.

An HPA may have annotations of both prefixes, each setting once. The state annotation has the prefix of the HPA's other
annotations, so that whoever reads the older one still finds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpa_scaler.annotations.spec import ENABLE, STATE
from tightship.objects.quoting import set_twice

PREFIX = "estafette.io"
"""What the older controller's annotations begin with (``main.go``)."""


def prefixes(native: str) -> tuple[str, ...]:
    """Return the prefixes of annotations, the *native* one first."""
    return (native,) if native == PREFIX else (native, PREFIX)


def prefix_of(annotations: Mapping[str, str], native: str) -> str:
    """Return the prefix of what is written on an HPA: the older one if it has annotations of the older one alone."""
    states = {state_name(each) for each in prefixes(native)}
    begun = [each for each in prefixes(native) if any(_begins(key, each) for key in annotations if key not in states)]
    return PREFIX if begun == [PREFIX] else native


def state_name(prefix: str) -> str:
    """Return the name of the state annotation."""
    return f"{prefix}/{ENABLE}-{STATE}"


def states_of(annotations: Mapping[str, str], native: str) -> tuple[str, ...]:
    """Return the names of the state annotations that there are, the one that counts first."""
    return tuple(name for name in map(state_name, prefixes(native)) if name in annotations)


def state_text(annotations: Mapping[str, str], native: str) -> str | None:
    """Return the text of the state annotation, ``None`` without one."""
    return next((annotations[name] for name in states_of(annotations, native)), None)


def texts_of(annotations: Mapping[str, str], native: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return the texts of an HPA's settings by name after ``hpa-scaler-``, what each name begins with, and problems."""
    texts: dict[str, str] = {}
    starts: dict[str, str] = {}
    problems = []
    switches = [f"{prefix}/{ENABLE}" for prefix in prefixes(native)]
    if len({annotations[each] for each in switches if each in annotations}) > 1:
        problems.append(set_twice(switches[1], switches[0]))
    for prefix in prefixes(native):
        start = f"{prefix}/{ENABLE}-"
        for key, text in annotations.items():
            name = key.removeprefix(start)
            if name in (key, STATE):
                continue
            if name in texts:
                problems.append(set_twice(key, starts[name] + name))
            texts.setdefault(name, text)
            starts.setdefault(name, start)
    return texts, starts, problems


def _begins(key: str, prefix: str) -> bool:
    return key == f"{prefix}/{ENABLE}" or key.startswith(f"{prefix}/{ENABLE}-")
