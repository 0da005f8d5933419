"""The flags of ``backtest`` and ``suggest``, and what they spell: outages, sets of annotations, prices."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hpa_scaler.annotations.parsing import BY_NAME
from hpa_scaler.annotations.values import parse_float
from hpa_scaler.backtest.variants import EVERY, AnnotationChange, Span, Variant
from hpa_scaler.process.commands import add_inputs
from tightship.cli.app import UsageError
from tightship.cli.arguments import value_of
from tightship.cli.basics import near
from tightship.objects import Node
from tightship.objects.durations import ALLOWED_FORMS, parse_duration
from tightship.objects.quoting import quoted
from tightship.objects.resources import NOTHING
from tightship.objects.times import parse_rfc3339
from tightship.planning.prices import INSTANCE_TYPE_LABELS, MICROS, NodePrice, parse_price
from tightship.process.settings.prices import no_list, read_prices

DEFAULT_SPAN = 14 * 86_400.0
LONGEST_SPAN = 366 * 86_400.0
LEAST_STEP, MOST_STEP = 5.0, 3600.0
SETS = (
    "a set of annotations to try beside today's, such as shop/web:requests-per-replica=40; * is every HPA; an "
    "empty VALUE removes the annotation. Those with the same SET@ are one set; repeatable"
)
"""The help of ``--set``."""


def add_past_options(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags that say which HPAs, and where their past comes from; return the group of the past."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="an HPA: NAME, or NAMESPACE/NAME (default: all)")
    add_inputs(parser)
    past = parser.add_argument_group("past")
    past.add_argument(
        "--past",
        metavar="[NAMESPACE/NAME=]FILE",
        action="append",
        help="take the past from FILE instead of asking servers: what --save-past wrote, CSV with a header (time, "
        "value, perhaps replicas and wanted), or JSON (an answer of query_range, Grafana's data frames, promtool's or "
        "VictoriaMetrics' output); .gz too, repeatable",
    )
    past.add_argument(
        "--series", metavar="NAME", default="", help="of several series in a file of --past, read the one called so"
    )
    past.add_argument(
        "--time-zone",
        metavar="ZONE",
        type=value_of(_zone),
        help="of times without an offset in a file of --past, such as Europe/Berlin (default: UTC)",
    )
    past.add_argument("--save-past", metavar="FILE", help="write the past to FILE, for another --past")
    past.add_argument(
        "--from", dest="begin", metavar="TIME", type=value_of(parse_rfc3339), help="RFC 3339 (default: 14 days ago)"
    )
    past.add_argument("--to", dest="end", metavar="TIME", type=value_of(parse_rfc3339), help="RFC 3339 (default: now)")
    past.add_argument(
        "--step",
        metavar="DURATION",
        type=value_of(_step),
        default=60.0,
        help="ask for one answer each DURATION (default: 1m)",
    )
    past.add_argument("--scale", metavar="FACTOR", type=value_of(_factor), default=1.0, help="multiply the traffic")
    past.add_argument(
        "--smooth",
        metavar="DURATION",
        type=value_of(_duration),
        default=0.0,
        help="take the mean of the last DURATION for each value of the traffic, as rate() over a range does",
    )
    past.add_argument(
        "--outage",
        metavar="TIME/DURATION",
        action="append",
        type=value_of(parse_outage),
        default=[],
        help="as if no query had been answered from TIME on, and the server had then begun without data; repeatable",
    )
    past.add_argument(
        "--interval",
        metavar="DURATION",
        type=value_of(_step),
        help="between two cycles (default: $INTERVAL, else 75s)",
    )
    past.add_argument(
        "--pod-start", metavar="DURATION", type=value_of(_duration), default=60.0, help="until a new pod is ready (1m)"
    )
    past.add_argument(
        "--hpa-target",
        metavar="PART",
        type=value_of(_factor),
        default=1.0,
        help="without the HPA's own metrics: the load at which the HPA keeps its pods, as a part of what one carries, "
        "such as 0.8 (default: 1)",
    )
    past.add_argument(
        "--replica-price",
        metavar="PRICE",
        help="what a replica costs an hour: a number such as 0.02, or an instance type and how many replicas share "
        "one, such as m6i.xlarge/6",
    )
    past.add_argument("--prices", metavar="FILE", help="prices of instance types, as for plans: see docs/money.md")
    return past


def add_backtest_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``backtest``."""
    past = add_past_options(parser)
    past.add_argument(
        "--set",
        dest="sets",
        metavar="[SET@]NAMESPACE/NAME:ANNOTATION=VALUE",
        action="append",
        default=[],
        help=SETS,
    )


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds > LONGEST_SPAN:
        raise ValueError(f"{quoted(text)} is too long; allowed is up to a year")
    return seconds


def _step(text: str) -> float:
    seconds = parse_duration(text)
    if not LEAST_STEP <= seconds <= MOST_STEP:
        raise ValueError(f"{quoted(text)}: allowed is {ALLOWED_FORMS}, of 5s to 1h")
    return seconds


def _zone(text: str) -> ZoneInfo:
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{quoted(text)} is no time zone; allowed is an IANA name such as Europe/Berlin") from error


def _factor(text: str) -> float:
    number = parse_float(text)
    if number is None or not 1e-9 <= number <= 1e9:
        raise ValueError(f"{quoted(text)} is not a factor; allowed is a number above 0, up to a billion")
    return number


def parse_outage(text: str) -> Span:
    """Return the stretch that *text* spells: ``2026-03-01T10:00:00Z/2h``. Raises :class:`ValueError`."""
    begin, slash, length = text.rpartition("/")
    if not slash:
        raise ValueError(f"{quoted(text)}: allowed is a time and a duration, such as 2026-03-01T10:00:00Z/2h")
    at, seconds = parse_rfc3339(begin), _duration(length)
    return Span(at, at + seconds)


def parse_set(text: str) -> tuple[str, AnnotationChange]:
    """Return the name of a set (empty: its own) and the change that *text* spells. Raises :class:`UsageError`."""
    allowed = "[SET@]NAMESPACE/NAME:ANNOTATION=VALUE, such as shop/web:requests-per-replica=40"
    left, equals, value = text.partition("=")
    where, colon, annotation = left.rpartition(":")
    name, _, target = where.rpartition("@")
    if not equals or not colon or not (target == EVERY or target.count("/") == 1):
        raise UsageError(f"--set {quoted(text)}: allowed is {allowed}")
    plain = annotation.rstrip("0123456789").removesuffix("-")
    if annotation not in BY_NAME and plain not in BY_NAME:
        raise UsageError(
            f"--set {quoted(text)}: there is no annotation {quoted(annotation)}{near(annotation, BY_NAME)}"
        )
    return name, AnnotationChange(target, annotation, value or None)


def variants_of(texts: Sequence[str]) -> list[Variant]:
    """Return the sets to try: today's, no floor, and those of *texts*."""
    found: dict[str, list[AnnotationChange]] = {}
    for text in texts:
        name, change = parse_set(text)
        found.setdefault(name or text, []).append(change)
    tried = [Variant("today", "today"), Variant("no floor", "none")]
    return tried + [Variant(name, "changed", tuple(changes)) for name, changes in found.items()]


def replica_price(arguments: argparse.Namespace) -> NodePrice | None:
    """Return the price of a replica-hour, ``None`` if none was asked for. Raises :class:`UsageError`."""
    text = arguments.replica_price
    prices = no_list() if arguments.prices is None else read_prices(arguments.prices)
    if text is None:
        if arguments.prices is not None:
            raise UsageError(
                "--prices has prices of instance types: say by --replica-price which, and how many share one"
            )
        return None
    kind, slash, number = text.partition("/")
    try:
        if not slash:
            micros = parse_price(text)
            return NodePrice(micros, "list", f"{text} {prices.currency} for a replica-hour", prices.currency)
    except ValueError as error:
        raise UsageError(f"--replica-price {error}, or an instance type such as m6i.xlarge/6") from error
    share = parse_float(number)
    if share is None or not 0 < share <= 1000:
        raise UsageError(f"--replica-price {quoted(text)}: allowed is a number of replicas after the slash, up to 1000")
    found = prices.price(_node(kind))
    if found is None:
        raise UsageError(f"--replica-price {quoted(text)}: no price is known for the instance type {quoted(kind)}")
    basis = f"{kind} at {found.hourly / MICROS:g} {found.currency} an hour ({found.basis}), {share:g} replicas on each"
    return NodePrice(math.floor(found.hourly / share + 0.5), found.source, basis, found.currency)


def _node(kind: str) -> Node:
    """Return a node of which only the instance type is known."""
    labels = {INSTANCE_TYPE_LABELS[0]: kind}
    return Node(kind, "", labels, {}, (), False, NOTHING, True, 0, None, "")
