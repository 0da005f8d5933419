"""``tightship config convert``: what the older controllers read, in the native form, and what that changes.

The adapters of the controllers say what each older name means. Each configuration is read in both forms, so that a
difference between them is told rather than assumed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

import hpa_scaler.annotations.parsing
import node_compactor.older
import node_refiner.older
from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.spec import ENABLE, PREFIX, STATE, Problems
from hpa_scaler.process.settings import ScalerRunSettings
from node_compactor.controller import CompactorRunSettings
from node_compactor.settings import CompactorSettings
from node_refiner.controller import RefinerRunSettings
from node_refiner.settings import RefinerSettings
from tightship.cli.app import CliError
from tightship.cli.arguments import CommandParser
from tightship.cli.object_file import read_bytes
from tightship.cli.output import write_document
from tightship.process.logging import FORMATS
from tightship.process.settings.loading import (
    ConfigSource,
    Layered,
    Translation,
    is_duration,
    mapping_of,
    resolve,
    wire,
    without_unit,
)
from tightship.process.settings.process import ProcessSettings

Json = dict[str, Any]

CONFIG = "config.yaml"
"""The key of a native ConfigMap's data."""

_HPA = "HorizontalPodAutoscaler"
_FLAGS: Mapping[str, str] = {
    "--minimum-node-age-seconds": "minimumNodeAge in the configuration",
    "--needed-marked-time-for-seconds": "neededMarkedTimeForRemoval in the configuration",
    "--sleep-duration-between-iterations-seconds": "INTERVAL",
    "--configmap-name": "CONFIG_MAP_NAME",
}
"""Flags of estafette-k8s-node-compactor (``main.go``), and what sets the same."""
_PODS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")


class Controller(Struct, frozen=True):
    """A controller with what an older one left: how its configuration is translated, and its process's settings."""

    name: str
    process: type[ProcessSettings]
    model: type[Layered] | None = None
    native: Callable[[Mapping[str, object]], Translation] = lambda values: Translation(dict(values))


_COMPACTOR = Controller("node-compactor", CompactorRunSettings, CompactorSettings, node_compactor.older.native)
_REFINER = Controller("node-refiner", RefinerRunSettings, RefinerSettings, node_refiner.older.native)
_SCALER = Controller("hpa-scaler", ScalerRunSettings)
_CONTROLLERS = (_COMPACTOR, _REFINER, _SCALER)


def add_config(commands: argparse._SubParsersAction[CommandParser]) -> None:
    """Add the command ``config convert``."""
    config = commands.add_parser("config", help="rewrite what other controllers read: config convert")
    convert = config.add_subparsers(dest="what", metavar="COMMAND", required=True).add_parser(
        "convert",
        help="print a file of an older controller in the native form",
        description="Print a file in the native form, and on stderr what that changes: a configuration or a ConfigMap "
        "of estafette-k8s-node-compactor or SAP node-refiner, the environment in a manifest of an older controller, "
        "the annotations of HPAs. What is not theirs passes unchanged. Examples: tightship config convert pools.json; "
        "kubectl get hpa web -o yaml | tightship config convert",
    )
    convert.add_argument("file", nargs="?", default="-", metavar="FILE", help="YAML or JSON (default: standard input)")
    convert.set_defaults(run=lambda arguments: _convert(arguments.file))


def _convert(path: str) -> int:
    body, name = read_bytes(path)
    text, notes = converted(body, name)
    write_document(text, always_utf8=True)
    sys.stderr.write("".join(f"{line}\n" for line in notes))
    return 0


def converted(body: bytes, name: str) -> tuple[str, list[str]]:
    """Return the documents of *body* in native form, and lines for people.

    Raises :class:`CliError` if *body* holds nothing of an older controller that could be read, and
    :class:`~tightship.process.settings.loading.SettingsError` for a configuration that is none.
    """
    try:
        documents = [each for each in yaml.safe_load_all(body.decode("utf-8-sig")) if each is not None]
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliError(f"{name}: neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not documents or not all(isinstance(each, dict) for each in documents):
        raise CliError(f"{name}: holds no mapping; allowed is a configuration, or manifests of Kubernetes")
    work = _Conversion(name, [thing for each in documents for thing in _things(each)])
    found = [work.document(each) for each in documents]
    if not work.notes:
        work.notes.append(f"{name}: nothing of an older controller is in there; it passes unchanged")
    return "---\n".join(map(_text, found)), work.notes


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, as people do in a ConfigMap."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


def _text(document: Json) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def _things(document: Json) -> Iterator[Json]:
    items = document.get("items") if str(document.get("kind", "")).endswith("List") else None
    yield from (each for each in items if isinstance(each, dict)) if isinstance(items, list) else (document,)


class _Conversion:
    """One conversion of a file of *things*; *notes* are lines for people."""

    def __init__(self, name: str, things: list[Json]) -> None:
        self.notes: list[str] = []
        self._name = name
        self._overrides: dict[str, object] = {}
        pods = [each for each in things if each.get("kind") in _PODS]
        if any(each.get("kind") == "ConfigMap" for each in things):
            for each in pods:
                self._overrides |= _overrides(each)

    def document(self, document: Json) -> Json:
        """Return *document* in native form."""
        if isinstance(document.get("items"), list) and str(document.get("kind", "")).endswith("List"):
            items = [self._thing(each) if isinstance(each, dict) else each for each in document["items"]]
            return {**document, "items": items}
        return self._thing(document)

    def _thing(self, thing: Json) -> Json:
        kind = thing.get("kind")
        where = f"{self._name}: {kind} {(thing.get('metadata') or {}).get('name', '')}" if kind else self._name
        if kind == "ConfigMap":
            return self._config_map(thing, where)
        if kind in _PODS:
            return self._pods(thing, where)
        if kind == _HPA:
            return self._hpa(thing, where)
        if kind is not None:
            return thing
        values = {str(key): value for key, value in thing.items()}
        controller = _whose(values)
        if controller is None:
            raise CliError(
                f"{self._name}: neither nodePools nor a key of SAP node-refiner is in there; allowed is a "
                "configuration of an older controller, or manifests of Kubernetes"
            )
        return self._configuration(controller, values, where)

    def _config_map(self, thing: Json, where: str) -> Json:
        data = thing.get("data") or {}
        held = next((key for key in (node_compactor.older.DATA_KEY, CONFIG, "config.json") if key in data), None)
        values = mapping_of(str(data[held]), f"{where}: {held}") if held else data
        controller = _whose(values)
        if controller is None:
            return thing
        said = len(self.notes)
        native = self._configuration(controller, values, where)
        if held == CONFIG and len(self.notes) == said:
            return thing
        rest = {key: text for key, text in data.items() if held and key != held}
        return {**thing, "data": {CONFIG: _text(native), **rest}}

    def _configuration(self, controller: Controller, values: Mapping[str, object], where: str) -> Json:
        model, translation = controller.model, controller.native(values)
        assert model is not None
        before = resolve(model, ConfigSource(model, translation, where))
        own = {key: value for key, value in self._overrides.items() if controller is _COMPACTOR}
        plain = {key: _plain(model, key, value) for key, value in (translation.values | own).items()}
        after = wire(resolve(model, ConfigSource(model, plain, where)))
        changed = [
            f"{key} is {after[key]} and no longer {value}"
            for key, value in wire(before).items()
            if after[key] != value and key not in own
        ]
        renamed = [f"{'.'.join(map(str, old))} is {new[-1]} now" for new, old in translation.older.items()]
        self._note(where, [*renamed, *(f"written down: {each}" for each in translation.notes)], changed)
        return plain

    def _pods(self, thing: Json, where: str) -> Json:
        spec = ((thing.get("spec") or {}).get("template") or {}).get("spec") or {}
        containers = [self._container(each, where) for each in spec.get("containers") or []]
        template = {**thing["spec"]["template"], "spec": {**spec, "containers": containers}} if containers else None
        return thing if template is None else {**thing, "spec": {**thing["spec"], "template": template}}

    def _container(self, container: Json, where: str) -> Json:
        variables = {str(each.get("name")): each for each in container.get("env") or []}
        controller = _running(container, variables)
        if controller is None:
            return container
        model, env = controller.process, []
        remarks: list[str] = []
        for name, each in variables.items():
            field, key = model.older.fields.get(name), node_compactor.older.CONFIG_KEYS.get(name)
            if field is not None:
                native = model.variables(field)[0]
                remarks.append(f"{name} is {native} now")
                env.append({**each, "name": native, **_with_unit(each, is_duration(model.model_fields[field]))})
            elif controller is _COMPACTOR and key is not None and key in self._overrides:
                remarks.append(f"{name} is {key} of the ConfigMap now")
            else:
                env.append(each)
                if controller is _COMPACTOR and key is not None:
                    remarks.append(
                        f"{name} stays, since {key} belongs into the configuration, which is not in this file"
                    )
        if any(name in model.older.fields for name in variables):
            given = {each.get("name") for each in env}
            for field, value in model.older.implied.items():
                native = model.variables(field)[0]
                if native not in given:
                    env.append({"name": native, "value": str(value)})
                    remarks.append(f"written down: {native}={value}, as the older controller")
        flags = [each for each in container.get("args") or [] if str(each).partition("=")[0] in _FLAGS]
        changed = [f"{each}: run has no such flag, set {_FLAGS[each.partition('=')[0]]}" for each in flags]
        if remarks or changed:
            remarks.append(f"the image stays {container.get('image', 'unset')}: write down that of {controller.name}")
        self._note(where, remarks, changed)
        return {**container, "env": env}

    def _hpa(self, thing: Json, where: str) -> Json:
        annotations = (thing.get("metadata") or {}).get("annotations") or {}
        older = hpa_scaler.annotations.parsing.OLDER_PREFIX
        renamed = {
            key: key.replace(older, PREFIX, 1)
            for key in annotations
            if key == f"{older}/{ENABLE}" or (key.startswith(f"{older}/{ENABLE}-") and not key.endswith(f"-{STATE}"))
        }
        if not renamed:
            return thing
        found = {renamed.get(key, key): str(text) for key, text in annotations.items()}
        before, after = parse_spec({key: str(text) for key, text in annotations.items()}), parse_spec(found)
        if isinstance(before, Problems):
            self._note(where, [f"can't be used before nor after: {each}" for each in before.lines], [])
        else:
            changed = [] if before == after else ["the annotations mean something else now"]
            self._note(where, [f"{old} is {new} now" for old, new in renamed.items()], changed)
        return {**thing, "metadata": {**thing["metadata"], "annotations": found}}

    def _note(self, where: str, remarks: list[str], changed: list[str]) -> None:
        if remarks or changed:
            self.notes += [f"{where}: {each}" for each in remarks]
            self.notes += [f"{where}: changes in behaviour: {'; '.join(changed) or 'nothing'}"]


def _whose(values: Mapping[str, object]) -> Controller | None:
    if "nodePools" in values:
        return _COMPACTOR
    return _REFINER if values.keys() & node_refiner.older.KEYS.keys() else None


def _running(container: Json, variables: Mapping[str, Json]) -> Controller | None:
    """Return the controller that *container* runs: by the name of its image, else by what only one has."""
    image = str(container.get("image", ""))
    named = next((each for each in _CONTROLLERS if each.name in image), None)
    own = variables.keys() & (node_compactor.older.VARIABLES.fields.keys() | {"CONFIGMAP_NAME"})
    return named or (_COMPACTOR if own else None)


def _overrides(pods: Json) -> dict[str, object]:
    """Return keys of the compactor's configuration with the values that the environment in *pods* gives them."""
    spec = ((pods.get("spec") or {}).get("template") or {}).get("spec") or {}
    found: dict[str, object] = {}
    for container in spec.get("containers") or []:
        variables = {str(each.get("name")): each for each in container.get("env") or []}
        if _running(container, variables) is _COMPACTOR:
            for name, key in node_compactor.older.CONFIG_KEYS.items():
                if "value" in variables.get(name, {}):
                    found[key] = _with_unit(variables[name], True)["value"]
    return found


def _with_unit(variable: Json, duration: bool) -> Json:
    value = variable.get("value")
    if value is None:
        return {}
    return {"value": f"{value}s" if duration and without_unit(value) else FORMATS.get(str(value), value)}


def _plain(model: type[Layered], key: str, value: object) -> object:
    """Return a text of SAP node-refiner's as YAML has it: a number, a switch or a list, if the field is one."""
    if not isinstance(value, str):
        return value
    field = next((name for name, each in model.model_fields.items() if (each.alias or name) == key), None)
    read = model.read(field, value) if field else value
    if isinstance(read, list):
        return read
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return found if isinstance(found, bool | int | float) else value.strip()
