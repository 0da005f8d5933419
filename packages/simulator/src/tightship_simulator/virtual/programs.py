"""The three controllers as what a simulation can start: their settings, and the coroutine that their ``run`` runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from hpa_scaler.annexes import FORECASTS
from hpa_scaler.process.forecasts import made_by
from hpa_scaler.process.loop import serve
from hpa_scaler.process.settings import ScalerRunSettings
from node_compactor.controller import COMPACTOR as _COMPACTOR
from node_refiner.controller import REFINER as _REFINER
from tightship.nodes.controller import AnyController
from tightship.nodes.loop import serve_nodes
from tightship.process.loop import Runtime
from tightship.process.settings.process import ProcessSettings


class Program(Struct, frozen=True):
    """A controller: its *name*, the model of its *settings*, and what serves it until ``runtime.stop``."""

    name: str
    settings: type[ProcessSettings]
    serve: Callable[[Runtime, Any, Mapping[str, str]], Awaitable[None]]


def _of(controller: AnyController) -> Program:
    return Program(controller.name, controller.process, partial(serve_nodes, controller))


COMPACTOR = _of(_COMPACTOR)
REFINER = _of(_REFINER)
SCALER = Program("hpa-scaler", ScalerRunSettings, partial(serve, forecasts_from=made_by(FORECASTS)))
PROGRAMS = (COMPACTOR, REFINER, SCALER)

__all__ = ["COMPACTOR", "PROGRAMS", "REFINER", "SCALER", "Program"]
