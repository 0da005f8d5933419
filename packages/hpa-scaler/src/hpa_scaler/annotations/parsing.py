"""The annotations of an HPA, from text to :class:`~hpa_scaler.annotations.spec.FloorSpec`.

``PREFIX/hpa-scaler: "true"`` opts in; all others are ``PREFIX/hpa-scaler-NAME``. The configuration's ``defaults``, with
the same names in camelCase, replace absent annotations. An invalid or unknown annotation disables the HPA: its floor
stays where it is.

estafette-k8s-hpa-scaler's annotations stand beside the native ones: an HPA may have annotations of both prefixes, each
setting once. The state annotation has the prefix of the HPA's other annotations, so that whoever reads the older one
still finds it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hpa_scaler.annotations import values
from hpa_scaler.annotations.spec import (
    ENABLE,
    PREFIX,
    STATE,
    FloorSpec,
    ForecastSpec,
    HoldSpec,
    MissingData,
    Problems,
    QuerySpec,
    Season,
    ServerRef,
)
from tightship.objects.quoting import quoted, set_twice

OLDER_PREFIX = "estafette.io"
"""What the older controller's annotations begin with (``main.go``)."""


def prefixes(native: str) -> tuple[str, ...]:
    """Return the prefixes of annotations, the *native* one first."""
    return (native,) if native == OLDER_PREFIX else (native, OLDER_PREFIX)


def prefix_of(annotations: Mapping[str, str], native: str) -> str:
    """Return the prefix of what is written on an HPA: the older one if it has annotations of the older one alone."""
    states = {state_name(each) for each in prefixes(native)}
    begun = [each for each in prefixes(native) if any(_begins(key, each) for key in annotations if key not in states)]
    return OLDER_PREFIX if begun == [OLDER_PREFIX] else native


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
            if name == key and key.startswith(f"{prefix}/") and _setting(key.removeprefix(f"{prefix}/")) in BY_NAME:
                # Without its query a floor would fall to the lower bound.
                problems.append(f"{key}: no annotation has this name; did you mean {key.replace('/', f'/{ENABLE}-')}?")
            if name in (key, STATE):
                continue
            if name in texts:
                problems.append(set_twice(key, starts[name] + name))
            texts.setdefault(name, text)
            starts.setdefault(name, start)
    return texts, starts, problems


def _begins(key: str, prefix: str) -> bool:
    return key == f"{prefix}/{ENABLE}" or key.startswith(f"{prefix}/{ENABLE}-")


MOST_QUERIES = 16
"""The most queries of one HPA: ``prometheus-query``, ``prometheus-query-2`` and so on up to this number."""

_SHOWN = 80

_EMPTY_IS_ABSENT = frozenset(
    {"requests-per-replica", "delta", "scale-down-max-ratio", "enable-scale-down-ratio-deployment-checking"}
)
"""For the older controller an empty text of these is none, and its generators write ``delta: ""`` for no delta
(estafette-extension-gke, ``templates/horizontalpodautoscaler.yaml``). An empty address or query is no default there."""

_T = TypeVar("_T")


class Annotation(Struct, frozen=True):
    """One annotation: its *name* after ``hpa-scaler-``, the reader of its text, and the field of a spec that it sets.

    An annotation without a *field* sets part of a field. A *numbered* annotation may be set for each query, as in
    ``delta-2``.
    """

    name: str
    read: Callable[[str], Any]
    field: str = ""
    numbered: bool = False

    @property
    def key(self) -> str:
        """The name in camelCase, as in the configuration's ``defaults``."""
        first, *rest = self.name.split("-")
        return first + "".join(part.capitalize() for part in rest)


QUERY = "prometheus-query"

ANNOTATIONS = (
    Annotation(QUERY, values.query, numbered=True),
    Annotation("requests-per-replica", values.positive, numbered=True),
    Annotation("delta", values.number, numbered=True),
    Annotation("prometheus-server", values.server_name, numbered=True),
    Annotation("prometheus-server-url", values.url, numbered=True),
    Annotation("scale-down-max-ratio", values.ratio, "ratio"),
    Annotation("enable-scale-down-ratio-deployment-checking", values.switch, "rollout_check"),
    Annotation("several-series", values.one_of("hold", "max", "error"), "series"),
    Annotation("query-range", values.duration, "query_range"),
    Annotation("missing-data", values.missing_data),
    Annotation("missing-data-after", values.whole(1)),
    Annotation("minimum-replicas", values.whole(0), "lowest"),
    Annotation("maximum-replicas", values.whole(1), "highest"),
    Annotation("max-replicas-policy", values.one_of("raise", "clamp"), "max_replicas"),
    Annotation("scale-up-max-ratio", values.ratio, "up_ratio"),
    Annotation("scale-up-max-pods", values.whole(1), "up_pods"),
    Annotation("honour-scale-up-behavior", values.switch, "honour_behavior"),
    Annotation("deadband", values.band, "deadband"),
    Annotation("lowering-window", values.duration, "window"),
    Annotation("lower-during", values.windows, "lower_during"),
    Annotation("forecast", values.season),
    Annotation("forecast-ahead", values.ahead),
    Annotation("hold-query", values.query),
    Annotation("hold-query-server", values.server_name),
    Annotation("hold-cool-down", values.duration),
    Annotation("paused", values.pause, "paused"),
    Annotation("paused-scale-down", values.pause, "paused_down"),
    Annotation("paused-scale-up", values.pause, "paused_up"),
    Annotation("dry-run", values.switch, "dry_run"),
)
"""Every annotation except the opt-in and the state."""

BY_NAME = {each.name: each for each in ANNOTATIONS}

BY_KEY = {each.key: each for each in ANNOTATIONS}
"""The annotations by their keys in the configuration's ``defaults``."""

_NUMBER = re.compile(r"-([2-9]|[1-9][0-9])$", re.ASCII)


def name_of(prefix: str, name: str) -> str:
    """Return the full name of an annotation, ``tightship.dev/hpa-scaler-delta`` for ``delta``."""
    return f"{prefix}/{ENABLE}-{name}"


def enabled(annotations: Mapping[str, str], prefix: str = PREFIX) -> bool:
    """Whether an HPA is opted in: exactly ``"true"``, as for the older controller."""
    return any(annotations.get(f"{each}/{ENABLE}") == "true" for each in prefixes(prefix))


def parse_spec(
    annotations: Mapping[str, str], prefix: str = PREFIX, defaults: Mapping[str, str] = {}
) -> FloorSpec | Problems:
    """Return the spec in *annotations*, or all their problems.

    *defaults* are texts by annotation name (``delta``), already checked by :func:`check_defaults`. An HPA's own server,
    by name or by address, replaces the default server.
    """
    given, starts, problems = texts_of(annotations, prefix)
    own = {name: text for name, text in given.items() if text or _NUMBER.sub("", name) not in _EMPTY_IS_ABSENT}
    reader = _SpecReader(own, defaults, name_of(prefix, ""), starts)
    spec = reader.spec()
    problems += reader.problems
    return Problems(tuple(sorted(problems))) if problems else spec


def check_defaults(defaults: Mapping[str, str]) -> list[str]:
    """Return the problems of *defaults* (texts by annotation name); each line begins with the key."""
    reader = _SpecReader(defaults, {}, "")
    reader.spec()
    lines = []
    for problem in sorted(reader.problems):
        name, colon, rest = problem.partition(":")
        lines.append(f"{BY_NAME[name].key if name in BY_NAME else name}{colon}{rest}")
    return lines


class _SpecReader:
    """Reads the texts of one HPA, and collects their problems."""

    def __init__(
        self, own: Mapping[str, str], defaults: Mapping[str, str], start: str, starts: Mapping[str, str] = {}
    ) -> None:
        self.problems: list[str] = []
        self._own = own
        self._defaults = defaults
        self._start = start
        self._starts = starts
        self._check_names()

    def problem(self, name: str, text: str, why: str) -> None:
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        # An AddressError already quotes the text.
        detail = why if why.startswith(quoted(text)) else f"{shown!r}: {why}"
        line = f"{self._starts.get(name, self._start)}{name}: {detail}"
        if line not in self.problems:
            self.problems.append(line)

    def spec(self) -> FloorSpec:
        missing = self._value("missing-data", MissingData())
        given: dict[str, Any] = {each.field: self._value(each.name, None) for each in ANNOTATIONS if each.field}
        spec = FloorSpec(
            queries=tuple(self._queries()),
            missing=msgspec.structs.replace(missing, after=self._value("missing-data-after", missing.after)),
            hold=self._hold(),
            forecast=self._forecast(),
            **{field: value for field, value in given.items() if value is not None},
        )
        if spec.lowest is not None and spec.highest is not None and spec.lowest > spec.highest:
            self.problem("minimum-replicas", str(spec.lowest), f"is above maximum-replicas, which is {spec.highest}")
        return spec

    def _value(self, name: str, absent: _T, number: str = "") -> _T:
        """Return the value of *name*, or of its variant for the query *number* if there is one; else *absent*.

        An unreadable text is a problem, and counts as absent.
        """
        given = f"{name}{number}"
        own = given if given in self._own else name
        text = self._own.get(own, self._defaults.get(name))
        if text is None:
            return absent
        try:
            value: _T = BY_NAME[name].read(text)
        except ValueError as error:
            if own == given:  # else reported under its own name
                self.problem(own, text, str(error))
            return absent
        return value

    def _queries(self) -> list[QuerySpec]:
        numbers = {match[0] for name in self._own if (match := _numbered(name)) is not None}
        found = []
        for number in ("", *sorted(numbers, key=lambda each: int(each[1:]))):
            given = self._own.get(QUERY + number, "" if number else self._defaults.get(QUERY, ""))
            if not given and not number and QUERY in self._own:
                continue  # A generator that writes no query may write 0 requests per replica beside it.
            text = self._checked(QUERY + number, given)
            query = QuerySpec(
                text=text,
                per_replica=self._value("requests-per-replica", 1.0, number),
                delta=self._value("delta", 0.0, number),
                server=self._server(number),
            )
            if text:
                found.append(query)
            elif number and not given:
                self.problem(QUERY + number, text, "is no query, but there are other annotations of this number")
        return found

    def _checked(self, name: str, text: str) -> str:
        """Return the query *text*, or an empty text if it is a problem."""
        try:
            return values.query(text)
        except ValueError as error:
            self.problem(name, text, str(error))
            return ""

    def _server(self, number: str) -> ServerRef:
        name, address = "prometheus-server", "prometheus-server-url"
        for suffix in dict.fromkeys((number, "")):
            has_name, has_address = name + suffix in self._own, address + suffix in self._own
            if has_name and has_address:
                self.problem(address + suffix, self._own[address + suffix], f"stands beside {name}{suffix}; give one")
            if has_name:
                return ServerRef(name=self._value(name, "", suffix))
            if has_address:
                return ServerRef(url=self._value(address, "", suffix))
        # Among the defaults, a name takes precedence.
        named = self._value(name, "")
        return ServerRef(name=named) if named else ServerRef(url=self._value(address, ""))

    def _hold(self) -> HoldSpec | None:
        text = self._value("hold-query", "")
        cool_down = self._value("hold-cool-down", HoldSpec("").cool_down)
        own = self._value("hold-query-server", "")
        if not text:
            return None
        return HoldSpec(text, cool_down, ServerRef(name=own) if own else self._server(""))

    def _forecast(self) -> ForecastSpec | None:
        season: Season | None = self._value("forecast", None)
        ahead = self._value("forecast-ahead", 0.0)
        if season is None:
            return None
        return ForecastSpec(season, ahead) if ahead else ForecastSpec(season)

    def _check_names(self) -> None:
        for name, text in self._own.items():
            if _setting(name) not in BY_NAME:
                near = difflib.get_close_matches(name, BY_NAME, n=2)
                start = self._starts.get(name, self._start)
                hint = f"did you mean {' or '.join(start + each for each in near)}?" if near else "see the docs"
                self.problem(name, text, f"no annotation has this name; {hint}")


def _setting(name: str) -> str:
    """Return the *name* of an annotation without its number."""
    return name if _numbered(name) is None else _NUMBER.sub("", name)


def _numbered(name: str) -> re.Match[str] | None:
    """Return the number at the end of the name of a numbered annotation."""
    match = _NUMBER.search(name)
    if match is None or int(match[1]) > MOST_QUERIES:
        return None
    annotation = BY_NAME.get(name[: match.start()])
    return match if annotation is not None and annotation.numbered else None
