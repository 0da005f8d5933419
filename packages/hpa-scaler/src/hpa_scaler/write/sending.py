"""One patch to one HPA. If the HPA has changed since its judgement, it is read, judged and patched once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Literal, TypeVar

from msgspec import Struct

from hpa_scaler.decide.ownership import CONTENT_TYPE, Patch, path_of
from tightship.core.api_errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, KubeError, NotFound, one_line
from tightship.core.objects import AUTOSCALER, HorizontalPodAutoscaler, ObjectError, decode
from tightship.kube.connection import Connection

Ending = Literal["written", "unneeded", "refused", "gone", "failed", "unheard", "left"]
"""How a write ended.

``unneeded``: the HPA had changed, and nothing was left to do. ``refused``: the API server, or an admission plugin, said
no. ``failed``: the write was not made. ``unheard``: nobody knows whether it succeeded. ``left``: to whoever may write
now, or to the next cycle.
"""

ENDINGS: tuple[Ending, ...] = Ending.__args__  # type: ignore[attr-defined]

T = TypeVar("T")


class PlannedPatch(Struct, Generic[T], frozen=True):
    """What to send: the *patch*, ``None`` if nothing is left to do, and what it was made *of*."""

    patch: Patch | None
    of: T


class Sent(Struct, Generic[T], frozen=True):
    """How the last *write* ended, and why; *again* says that the HPA had changed since its judgement."""

    write: PlannedPatch[T]
    ending: Ending
    detail: str = ""
    again: bool = False


async def send(
    connection: Connection,
    hpa: HorizontalPodAutoscaler,
    make: Callable[[HorizontalPodAutoscaler], PlannedPatch[T]],
    may: Callable[[], Awaitable[bool]],
) -> Sent[T]:
    """Send what *make* returns for *hpa* as judged; if the HPA has changed, read it and send what *make* returns then.

    *may* is awaited before each write. Never raises errors of the API server.
    """
    write = make(hpa)
    if write.patch is None:
        return Sent(write, "unneeded")
    ending, detail = await _patched(connection, write.patch, may)
    if ending != "changed":
        return Sent(write, ending, detail)
    try:
        present = await read_again(connection, hpa)
    except NotFound:
        return Sent(write, "gone", again=True)
    except (KubeError, ObjectError) as error:
        return Sent(write, "failed", one_line(error), again=True)
    if present.uid != hpa.uid:
        # Another one of the same name has its own uid, and is judged by itself.
        return Sent(write, "gone", again=True)
    write = make(present)
    if write.patch is None:
        return Sent(write, "unneeded", again=True)
    # A test that does not hold and an admission plugin's no look the same, but the one is not met twice in a row.
    ending, detail = await _patched(connection, write.patch, may)
    return Sent(write, "refused" if ending == "changed" else ending, detail, again=True)


async def _patched(
    connection: Connection, patch: Patch, may: Callable[[], Awaitable[bool]]
) -> tuple[Ending | Literal["changed"], str]:
    """Return how *patch* ended, and why; ``changed`` means that the HPA seems to have changed."""
    if not await may():
        return "left", ""
    try:
        await connection.request("PATCH", patch.path, params=patch.params, body=patch.body, content_type=CONTENT_TYPE)
    except (Invalid, Conflict) as error:
        return "changed", error.message or one_line(error)
    except (Forbidden, BadRequest) as error:
        return "refused", error.message or one_line(error)
    except NotFound:
        return "gone", ""
    except ApiError as error:
        # 429 and 5xx: a proxy in between may have given up on what the API server then did.
        return "unheard" if error.status >= 500 else "failed", one_line(error)
    except KubeError as error:
        return "unheard", one_line(error)
    return "written", ""


async def read_again(connection: Connection, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return the HPA of this name as it is now: never older than any earlier write.

    Raises :class:`~tightship.core.api_errors.KubeError` and :class:`~tightship.core.objects.ObjectError`.
    """
    raw = await connection.request("GET", path_of(hpa.namespace, hpa.name))
    thing = decode(AUTOSCALER, raw)
    assert isinstance(thing, HorizontalPodAutoscaler)
    return thing
