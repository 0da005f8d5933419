"""The three controllers as what a simulation can start: their settings, and the coroutine that their ``run`` runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

import hpa_scaler.running
import node_compactor.running
import node_refiner.running
from hpa_scaler.process.settings import ScalerRunSettings
from node_compactor.run_settings import CompactorRunSettings
from node_refiner.run_settings import RefinerRunSettings
from tightship.process.main import Runtime
from tightship.process.settings.process import ProcessSettings


class Program(Struct, frozen=True):
    """A controller: its *name*, the model of its *settings*, and what serves it until ``runtime.stop``."""

    name: str
    settings: type[ProcessSettings]
    serve: Callable[[Runtime, Any, Mapping[str, str]], Awaitable[None]]


COMPACTOR = Program("node-compactor", CompactorRunSettings, node_compactor.running.serve)
REFINER = Program("node-refiner", RefinerRunSettings, node_refiner.running.serve)
SCALER = Program("hpa-scaler", ScalerRunSettings, hpa_scaler.running.serve)
PROGRAMS = (COMPACTOR, REFINER, SCALER)

__all__ = ["COMPACTOR", "PROGRAMS", "REFINER", "SCALER", "Program"]
