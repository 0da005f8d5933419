"""images/Dockerfile, read: its stages, what each of them inherits, and the commands that fill one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "images/Dockerfile"


class Instruction(NamedTuple):
    """One instruction: its word in capitals, and what follows on its lines."""

    word: str
    rest: str


class Stage(NamedTuple):
    """One stage: the stage or image it starts from, and its own instructions."""

    name: str
    base: str
    own: tuple[Instruction, ...]


def read() -> dict[str, Stage]:
    """Every stage of the Dockerfile by its name, in order."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    stages: dict[str, Stage] = {}
    name, base, own = "", "", list[Instruction]()
    for line in filter(None, map(str.strip, lines)):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            own = []
        elif name:
            own.append(Instruction(word, rest.strip()))
        if name:
            stages[name] = Stage(name, base, tuple(own))
    return stages


def inherited(name: str) -> tuple[Instruction, ...]:
    """What makes stage *name*: the instructions of the stages it starts from, then its own."""
    stages = read()
    stage = stages[name]
    return (*(inherited(stage.base) if stage.base in stages else ()), *stage.own)


def commands(name: str) -> tuple[str, ...]:
    """The shell commands that stage *name* runs from its image on, without BuildKit's flags."""
    return tuple(re.sub(r"^(--\S+\s+)+", "", each.rest) for each in inherited(name) if each.word == "RUN")
