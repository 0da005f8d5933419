"""Advice followed: the commands that ``explain`` and ``plan`` print, applied to the objects of a file as a cluster
would, and what a plan then removes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from tightship_testkit.commands import Outcome

Json = dict[str, Any]
T = TypeVar("T", Json, list[Json])

Plans = Callable[[list[Json], Json | None, Sequence[str]], Json]
"""Plans objects by a configuration (``None``: without one) with more flags, and returns the document."""


def planned_by(cli: Callable[..., Outcome], folder: Path, now: str) -> Plans:
    """Return what plans by the command *cli* at the time *now*, with files in *folder*."""

    def plan(objects: list[Json], config: Json | None, flags: Sequence[str]) -> Json:
        cluster, settings = folder / "objects.json", folder / "settings.json"
        cluster.write_bytes(msgspec.json.encode({"kind": "List", "items": objects}))
        settings.write_bytes(msgspec.json.encode(config))
        given = [] if config is None else ["--config", settings]
        # Time is no limit: who tests the same cluster twice wants the same answer.
        at = [] if "--now" in flags else ["--now", now]
        long = [] if "--advice-time" in flags else ["--advice-time", "1h"]
        reported = cli("plan", "-f", cluster, *given, "-o", "json", *long, *at, *flags)
        assert reported.code == 0, reported.err
        document: Json = msgspec.json.decode(reported.out)
        return document

    return plan


class Followed(Struct):
    """How many pieces of advice were followed, and those after which a plan did not gain what they say."""

    pieces: int = 0
    broken: list[str] = []

    def follow(
        self, objects: list[Json], config: Json | None, plan: Plans, default: Json, flags: Sequence[str] = ()
    ) -> Json:
        """Plan *objects* with advice, follow each piece by itself, plan again, and compare; return the first document.

        *default* is the configuration that holds without *config*; *flags* are for every plan.
        """
        before = plan(objects, config, flags)
        off = (*flags, "--advice-time", "0")
        advice = before["advice"]
        together = [advice["together"]] if advice["together"] else []
        for each in (*advice["changes"], *together):
            self.pieces += 1
            self._compare(each, before, plan(*self._made(each, objects, config, default), off))
            if each["flags"] and each["values"]:
                words = [word for flag in each["flags"] for word in flag.split()]
                edited = self._made(each, objects, config, default)[0]
                self._compare(each, before, plan(edited, config, (*off, *words)))
        return before

    def _made(
        self, advice: Json, objects: list[Json], config: Json | None, default: Json
    ) -> tuple[list[Json], Json | None]:
        for command in advice["commands"]:
            objects = followed(objects, command)
        if advice["values"]:
            config = _copy(default if config is None else config)
            _merge(config, yaml.safe_load(advice["values"])["config"])
        return objects, config

    def _compare(self, advice: Json, before: Json, after: Json) -> None:
        old, new = _removed(before), _removed(after)
        gain, said = _saved(after) - _saved(before), advice["gain"]["microsPerMonth"]
        if (len(new) - len(old), sorted(new - old)) != (advice["gain"]["nodes"], advice["freed"]) or (
            said is not None and said != gain
        ):
            self.broken.append(f"{advice}: {sorted(new - old)} more, without {sorted(old - new)}, {gain} micros")


def _removed(document: Json) -> set[str]:
    return {each["name"] for each in document["nodes"] if each["decision"] == "remove"}


def _saved(document: Json) -> int:
    money = document["summary"].get("money")
    return money["microsPerMonth"]["saved"] if money else 0


def followed(objects: list[Json], advice: str) -> list[Json]:
    """Return *objects* after the commands in *advice*, each rollout done: pods are as their templates say."""
    after = _copy(objects)
    for command in advice.split(" && "):
        _run(after, shlex.split(command, comments=True))
    return after


def _copy(things: T) -> T:
    """Return a copy of what JSON can hold, much faster than :mod:`copy` makes it."""
    copied: T = msgspec.json.decode(msgspec.json.encode(things))
    return copied


def _run(objects: list[Json], words: list[str]) -> None:
    match [word for word in words if word != "--overwrite"]:
        case ["kubectl", "-n", namespace, "patch", "pdb", name, "--type", "merge", "-p", patch]:
            budget = _find(objects, "poddisruptionbudget", namespace, name)
            _merge(budget, json.loads(patch))
            _count(budget)
        case ["kubectl", "-n", namespace, "delete", "pdb", name]:
            objects.remove(_find(objects, "poddisruptionbudget", namespace, name))
        case ["kubectl", "-n", namespace, "patch", kind, name, "--type", "merge", "-p", patch]:
            owner = _find(objects, kind, namespace, name, made=True)
            _patch(objects, owner, json.loads(patch))
        case ["kubectl", "-n", namespace, "patch", kind, name, "-p", patch]:
            _constrain(objects, _find(objects, kind, namespace, name, made=True), json.loads(patch))
        case ["kubectl", "-n", namespace, "annotate", kind, *names, written]:
            for name in names:
                _annotate(_find(objects, kind, namespace, name), written)
        case ["kubectl", "annotate", "node", *names, written]:
            for name in names:
                _annotate(_find(objects, "node", None, name), written)
        case ["kubectl", "patch", "nodepool", name, "--type", "merge", "-p", patch]:
            _merge(_find(objects, "nodepool", None, name), json.loads(patch))
        case ["kubectl", "uncordon", name]:
            spec = _find(objects, "node", None, name)["spec"]
            del spec["unschedulable"]
            _untaint(spec, ["node.kubernetes.io/unschedulable:NoSchedule-"])
        case ["kubectl", "taint", "node", name, *taints]:
            _untaint(_find(objects, "node", None, name)["spec"], taints)
        case _:
            raise AssertionError(f"no command that a shell would run: {words}")


def _constrain(objects: list[Json], owner: Json, patch: Json) -> None:
    """Merge topology spread constraints by their key, as the API server does, into all pods that *owner* makes."""
    new = {each["topologyKey"]: each for each in patch["spec"]["template"]["spec"]["topologySpreadConstraints"]}
    for made in list(_owned(objects, owner)):
        if made["kind"] != "Pod":
            _constrain(objects, made, patch)
            continue
        for each in made["spec"]["topologySpreadConstraints"]:
            each.update(new.get(each["topologyKey"], {}))


def _annotate(thing: Json, written: str) -> None:
    notes = thing["metadata"].setdefault("annotations", {})
    key, equals, value = written.partition("=")
    if equals:
        notes[key] = value
    else:
        notes.pop(key.removesuffix("-"), None)  # a rollout may have replaced the pod: kubectl then removes nothing


def _untaint(spec: Json, taints: Sequence[str]) -> None:
    spec["taints"] = [each for each in spec.get("taints", ()) if f"{each['key']}:{each['effect']}-" not in taints]


def _count(budget: Json) -> None:
    """Compute the status of *budget* as the disruption controller does, for as many pods as before."""
    spec, status = budget["spec"], budget["status"]
    most = spec.get("maxUnavailable")
    wanted = spec["minAvailable"] if most is None else max(0, status["expectedPods"] - most)
    status |= {"desiredHealthy": wanted, "disruptionsAllowed": max(0, status["currentHealthy"] - wanted)}


def _find(objects: list[Json], kind: str, namespace: str | None, name: str, *, made: bool = False) -> Json:
    """Return an object, with *made* also an owner that the file does not have: its objects name it."""
    kind, _, group = kind.partition(".")
    found = [
        each
        for each in objects
        if each["kind"].lower() == kind
        and (not group or each["apiVersion"].partition("/")[0] == group)
        and (each["metadata"].get("namespace"), each["metadata"]["name"]) == (namespace, name)
    ]
    if found or not made:
        [found_one] = found
        return found_one
    title = {"deployment": "Deployment", "rollout": "Rollout", "statefulset": "StatefulSet", "cronjob": "CronJob"}[kind]
    return {"kind": title, "metadata": {"name": name, "namespace": namespace}, "spec": {}, "absent": True}


def _merge(into: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def _owned(objects: list[Json], owner: Json) -> Iterator[Json]:
    meta = owner["metadata"]
    for each in objects:
        if each["metadata"].get("namespace") != meta.get("namespace"):
            continue
        for reference in each["metadata"].get("ownerReferences", ()):
            if (reference["kind"], reference["name"]) == (owner["kind"], meta["name"]):
                yield each
            elif owner.get("absent") and reference["kind"] == "ReplicaSet" and each["kind"] == "Pod":
                # Of a Deployment whose ReplicaSets are not in the file, pods know the hash.
                ending = each["metadata"].get("labels", {}).get("pod-template-hash")
                if owner["kind"] == "Deployment" and f"{meta['name']}-{ending}" == reference["name"]:
                    yield each


def _patch(objects: list[Json], owner: Json, patch: Json) -> None:
    """Patch the template of *owner*, and replace what it makes: a Deployment's ReplicaSets, and the pods of either.

    Nothing replaces the pods of a ReplicaSet without a Deployment, or the Jobs of a CronJob. Of a template that the
    file lacks, only what was patched is known.
    """
    whole = "template" in owner["spec"]
    _merge(owner, patch)
    if owner["kind"] in ("CronJob", "Job", "ReplicaSet", "ReplicationController"):
        return
    notes = patch["spec"]["template"]["metadata"]["annotations"]
    for made in list(_owned(objects, owner)):
        if made["kind"] == "Pod":
            _replace(made, owner if whole else None, notes)
            continue
        template = made["spec"].get("template")
        if template is not None:
            meta = template.setdefault("metadata", {})
            if whole:
                meta["annotations"] = dict(owner["spec"]["template"]["metadata"].get("annotations", {}))
            else:
                _merge(meta.setdefault("annotations", {}), notes)
        for pod in _owned(objects, made):
            _replace(pod, made if template is not None else None, notes)


def _replace(pod: Json, maker: Json | None, notes: Json) -> None:
    meta = pod["metadata"]
    if maker is None:
        _merge(meta.setdefault("annotations", {}), notes)
    else:
        meta["annotations"] = dict(maker["spec"]["template"]["metadata"].get("annotations", {}))
