"""Checks that HPAs can be read at all: before that there is nothing to lead, and a replica is not ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from hpa_scaler.app.settings import ScalerSettings
from tightship.app.observability.logging import log
from tightship.app.runtime.serving import Frame
from tightship.core.api_errors import Forbidden, KubeError, one_line
from tightship.core.backoff import Backoff
from tightship.kube.resources import AUTOSCALERS

_FIRST, _LONGEST = 0.5, 30.0
_LOOK = 0.1


class FirstLook:
    """Requests one HPA from each selected namespace until that succeeds."""

    def __init__(self, frame: Frame[ScalerSettings]) -> None:
        self._frame = frame
        self._why = "HPAs were not looked at yet"

    def waits_for(self) -> Sequence[str]:
        """Return why HPAs can't be read, empty once they could be."""
        return (self._why,) if self._why else ()

    async def run(self) -> None:
        """Continue until it succeeds."""
        frame, backoff, told = self._frame, Backoff(_FIRST, _LONGEST), False
        while self._why:
            if not frame.live.read:
                # Which namespaces may be looked at is in the configuration.
                await asyncio.sleep(_LOOK)
                continue
            try:
                for namespace in frame.live.current.namespaces or ("",):
                    path = AUTOSCALERS.within(namespace=namespace).path
                    await frame.connection.request("GET", path, params={"limit": "1"}, retry=False)
            except KubeError as error:
                hint = "; see docs/permissions.md" if isinstance(error, Forbidden) else ""
                self._why = f"HPAs can't be read: {one_line(error)}{hint}"
                log(frame.logger, logging.DEBUG if told else logging.WARNING, "not ready", error=self._why)
                told = True
                await asyncio.sleep(backoff.next())
            else:
                self._why = ""


__all__ = ["FirstLook"]
