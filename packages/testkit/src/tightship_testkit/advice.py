"""Advice followed: the commands that ``explain`` prints, applied to the objects of a file as a cluster would."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]


def followed(objects: list[Json], advice: str) -> list[Json]:
    """Return *objects* after the commands in *advice*, each rollout done: pods are as their templates say."""
    after = copy.deepcopy(objects)
    for command in advice.split(" && "):
        _run(after, shlex.split(command))
    return after


def _run(objects: list[Json], words: list[str]) -> None:
    match words:
        case ["kubectl", "-n", namespace, "patch", kind, name, "--type", "merge", "-p", patch]:
            owner = _find(objects, kind, namespace, name)
            _merge(owner, json.loads(patch))
            _roll_out(objects, owner)
        case ["kubectl", "-n", namespace, "annotate", "pod", name, written, *_]:
            notes = _find(objects, "pod", namespace, name)["metadata"].setdefault("annotations", {})
            key, equals, value = written.partition("=")
            if equals:
                notes[key] = value
            else:
                del notes[key.removesuffix("-")]
        case _:
            raise AssertionError(f"no command that a shell would run: {words}")


def _find(objects: list[Json], kind: str, namespace: str, name: str) -> Json:
    [found] = [
        each
        for each in objects
        if each["kind"].lower() == kind
        and (each["metadata"].get("namespace"), each["metadata"]["name"]) == (namespace, name)
    ]
    return found


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _owned(objects: list[Json], owner: Json) -> Iterator[Json]:
    for each in objects:
        for reference in each["metadata"].get("ownerReferences", ()):
            if (reference["kind"], reference["name"]) == (owner["kind"], owner["metadata"]["name"]):
                yield each


def _roll_out(objects: list[Json], owner: Json) -> None:
    """Write the template of *owner* to what it makes: a Deployment's ReplicaSets, and the pods of either.

    Nothing replaces the pods of a ReplicaSet without a Deployment, or the Jobs of a CronJob.
    """
    if owner["kind"] in ("CronJob", "Job", "ReplicaSet", "ReplicationController"):
        return
    notes = owner["spec"]["template"]["metadata"].get("annotations", {})
    for made in _owned(objects, owner):
        if made["kind"] != "Pod":
            made["spec"].setdefault("template", {}).setdefault("metadata", {})["annotations"] = notes
        for pod in [made] if made["kind"] == "Pod" else _owned(objects, made):
            pod["metadata"]["annotations"] = dict(notes)
