"""A container of a pod as a process of this machine: its command, its environment, and the files of its volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tightship_testkit.client import Json

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")


class ContainerError(Exception):
    """A pod wants something that a process of this machine can't have; the message names it."""


@dataclass(frozen=True)
class Command:
    """What is started for a container: words, environment, and seconds between SIGTERM and SIGKILL."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    grace: float


def volumes_of(pod: Json) -> dict[str, tuple[str, str]]:
    """Return, by the name of each volume, the kind and name of the object with its files; ``("", "")`` is empty.

    Raises ContainerError for a volume of any other kind, and for a choice of keys.
    """
    found: dict[str, tuple[str, str]] = {}
    for each in pod["spec"].get("volumes") or []:
        name = each["name"]
        match each:
            case {"configMap": {"items": _}} | {"secret": {"items": _}}:
                raise ContainerError(f"volume {name} chooses keys, which is not done here")
            case {"configMap": {"name": source}}:
                found[name] = ("ConfigMap", source)
            case {"secret": {"secretName": source}}:
                found[name] = ("Secret", source)
            case {"emptyDir": _}:
                found[name] = ("", "")
            case _:
                raise ContainerError(f"volume {name} is none of configMap, secret and emptyDir: {each}")
    return found


def command_of(pod: Json, directories: Mapping[str, Path]) -> Command:
    """Return the command of a pod's only container, whose volumes are these *directories*.

    A path below a mount is that of the volume's directory, wherever it stands in the environment or the arguments.
    Raises ContainerError for what is not known here.
    """
    spec = pod["spec"]
    if len(spec["containers"]) != 1 or spec.get("initContainers"):
        raise ContainerError(f"{pod['metadata']['name']} has other containers besides its controller")
    [container] = spec["containers"]
    if container.get("envFrom"):
        raise ContainerError(f"{pod['metadata']['name']} has envFrom, which is not done here")
    mounts = {each["mountPath"]: directories[each["name"]] for each in container.get("volumeMounts") or []}
    environment: dict[str, str] = {}
    for each in container.get("env") or []:
        environment[each["name"]] = _moved(_expanded(_value(pod, each), environment), mounts)
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    return Command(
        tuple(_moved(_expanded(each, environment), mounts) for each in words),
        environment,
        float(spec.get("terminationGracePeriodSeconds", 30)),
    )


def _value(pod: Json, variable: Json) -> str:
    match variable:
        case {"valueFrom": {"fieldRef": {"fieldPath": path}}}:
            found: object = pod
            for part in path.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if not isinstance(found, str):
                raise ContainerError(f"{variable['name']} is {path}, which is no text of {pod['metadata']['name']}")
            return found
        case {"valueFrom": other}:
            raise ContainerError(f"{variable['name']} comes from {other}, which is not done here")
    return str(variable.get("value", ""))


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Expand references as Kubernetes does: ``$(NAME)`` where the name is known, and ``$$`` is one dollar sign."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]), text)


def _moved(text: str, mounts: Mapping[str, Path]) -> str:
    for mount, directory in mounts.items():
        if text == mount or text.startswith(f"{mount}/"):
            return f"{directory}{text.removeprefix(mount)}"
    return text


__all__ = ["Command", "ContainerError", "command_of", "volumes_of"]
