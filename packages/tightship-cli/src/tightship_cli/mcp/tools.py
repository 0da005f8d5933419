"""The tools: each is a command of ``tightship`` that prints JSON, with those of its flags that name no file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from tightship.fit.model import MODES
from tightship.objects.quoting import near, quoted
from tightship.planning.plan import STRATEGIES, Placement

Kind = Literal["string", "integer", "boolean", "array"]
_TYPES: Mapping[Kind, type] = {"string": str, "integer": int, "boolean": bool, "array": list}


class Input(Struct, frozen=True):
    """An argument of a tool: its *flag*, empty for the command's own arguments, which are needed."""

    kind: Kind
    flag: str
    description: str
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, object]:
        """The JSON schema of the value."""
        found: dict[str, object] = {"type": self.kind, "description": self.description}
        if self.kind == "array":
            found |= {"items": {"type": "string"}} | ({} if self.flag else {"minItems": 1})
        return found | ({"enum": list(self.choices)} if self.choices else {})


class ToolRow(Struct, frozen=True):
    """A tool: the *words* of its command, what it tells, and its *inputs*.

    *source* says which of the server's flags about the source the command takes besides those of the cluster.
    """

    words: tuple[str, ...]
    description: str
    inputs: Mapping[str, Input] = {}
    source: tuple[str, ...] = ()


class InputError(ValueError):
    """Arguments that a tool does not take."""


_NODES = {
    "pool": Input("array", "--pool", "only nodes of these pools may be removed"),
    "selector": Input("string", "--selector", "only nodes with these labels may be removed, as for kubectl"),
    "strategy": Input("string", "--strategy", "the order of removals", tuple(STRATEGIES)),
    "placement": Input("string", "--placement", "how sure the places of pods are", get_args(Placement)),
    "maxNodes": Input("integer", "--max-nodes", "removals after which the plan stops"),
    "untilStable": Input("boolean", "--until-stable", "plan round after round until no more node can go"),
}
_NAMED = {"nodes": Input("array", "", "names of nodes"), **_NODES}
_HPAS = {
    "namespace": Input("array", "--namespace", "only HPAs of these namespaces"),
    "selector": Input("string", "--selector", "only HPAs with these labels, as for kubectl"),
}

TOOLS: Mapping[str, ToolRow] = {
    "plan": ToolRow(
        ("plan",),
        "Which nodes could go, where their pods would land, what is saved, what keeps the rest.",
        _NODES,
        ("config",),
    ),
    "frontier": ToolRow(
        ("plan", "--frontier"),
        "One plan in the order of what nodes cost in evictions: what each buys, and the fewest proven.",
        {name: each for name, each in _NODES.items() if name in ("pool", "selector")},
        ("config",),
    ),
    "explain": ToolRow(
        ("explain",), "All about the named nodes: each pod, each blocker, what would free them.", _NAMED, ("config",)
    ),
    "fit": ToolRow(
        ("fit",),
        "Which machine types, and how many, would carry what runs at the least money, beside a proven bound.",
        {
            "pool": Input("array", "--pool", "carry the pods of these pools"),
            "chooseFrom": Input("string", "--choose-from", "only this alternative", MODES),
            "types": Input("string", "--types", "only these machine types and families, joined by commas"),
            "atMost": Input("integer", "--at-most", "types that are used at most"),
            "spot": Input("string", "--spot", "pods with these labels may run on spot machines too, as for kubectl"),
        },
    ),
    "lint": ToolRow(
        ("lint", "--fail-on=never"), "What will block drains and floors for good.", {}, ("config", "floors_config")
    ),
    "floors": ToolRow(
        ("floors", "plan"),
        "Where the floor (minReplicas) of each HPA with annotations of hpa-scaler would go, and why.",
        _HPAS,
        ("floors_config", "prometheus_server_url", "outcomes"),
    ),
}
"""All tools, by their names."""


def arguments_of(tool: ToolRow, given: Mapping[str, object]) -> list[str]:
    """Return *given* as arguments of the command of *tool*: no value becomes a flag. Raises :class:`InputError`."""
    flags: list[str] = []
    named: list[str] = []
    for name, value in given.items():
        known = tool.inputs.get(name)
        if known is None:
            allowed = ", ".join(tool.inputs) or "no argument"
            raise InputError(f"{quoted(name)} is no argument{near(name, tool.inputs)}; allowed is {allowed}")
        many = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if type(value) is not _TYPES[known.kind] or (known.kind == "array" and not many):
            raise InputError(
                f"{name}: {quoted(str(value))} is no {known.kind}{' of strings' * (known.kind == 'array')}"
            )
        values: Sequence[object] = value if isinstance(value, list) else [value]
        if not known.flag:
            named += map(str, values)
        elif known.kind == "boolean":
            flags += [known.flag] if value else []
        else:
            flags += [f"{known.flag}={each}" for each in values]
    for name, known in tool.inputs.items():
        if not known.flag and not given.get(name):
            raise InputError(f"{name} is missing: {known.description}")
    return [*flags, *(["--", *named] if named else [])]
