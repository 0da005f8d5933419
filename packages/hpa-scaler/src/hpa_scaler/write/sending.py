"""One patch to one HPA. If the HPA has changed since its judgement, it is read, judged and patched once more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from hpa_scaler.decide.writing import CONTENT_TYPE, Patch, path_of
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


class Sent(Struct, frozen=True):
    """The result of a patch, and why; *again* says that the HPA had changed, and was judged again."""

    ending: Ending
    detail: str = ""
    again: bool = False


async def send(
    connection: Connection,
    hpa: HorizontalPodAutoscaler,
    make: Callable[[HorizontalPodAutoscaler], Patch | None],
    may: Callable[[], Awaitable[bool]],
) -> Sent:
    """Send the patch that *make* returns for *hpa* as judged; if the HPA has changed, read it and send the patch for
    that.

    *make* returns ``None`` if nothing is left to do. *may* is awaited before each write. Never raises errors of the API
    server.
    """
    patch = make(hpa)
    if patch is None:
        return Sent("unneeded")
    first = await _sent(connection, patch, may)
    if first is not None:
        return first
    try:
        present = await read_again(connection, hpa)
    except NotFound:
        return Sent("gone", again=True)
    except (KubeError, ObjectError) as error:
        return Sent("failed", one_line(error), again=True)
    patch = make(present) if present.uid == hpa.uid else None
    if patch is None:
        # Another one of the same name has its own uid, and is judged by itself.
        return Sent("unneeded" if present.uid == hpa.uid else "gone", again=True)
    second = await _sent(connection, patch, may, again=True)
    assert second is not None
    return second


async def _sent(
    connection: Connection, patch: Patch, may: Callable[[], Awaitable[bool]], *, again: bool = False
) -> Sent | None:
    """Return the result of *patch*, ``None`` if the HPA seems to have changed for the first time."""
    if not await may():
        return Sent("left", again=again)
    try:
        await connection.request("PATCH", patch.path, params=patch.params, body=patch.body, content_type=CONTENT_TYPE)
    except (Invalid, Conflict) as error:
        # A test that does not hold and an admission plugin's no look the same, but the one is not met twice in a row.
        return Sent("refused", _why(error), again=True) if again else None
    except (Forbidden, BadRequest) as error:
        return Sent("refused", _why(error), again)
    except NotFound:
        return Sent("gone", again=again)
    except ApiError as error:
        # 429 and 5xx: a proxy in between may have given up on what the API server then did.
        return Sent("unheard" if error.status >= 500 else "failed", one_line(error), again)
    except KubeError as error:
        return Sent("unheard", one_line(error), again)
    return Sent("written", again=again)


async def read_again(connection: Connection, hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Return the HPA of this name as it is now: never older than any earlier write.

    Raises :class:`~tightship.core.api_errors.KubeError` and :class:`~tightship.core.objects.ObjectError`.
    """
    raw = await connection.request("GET", path_of(hpa.namespace, hpa.name))
    thing = decode(AUTOSCALER, raw)
    assert isinstance(thing, HorizontalPodAutoscaler)
    return thing


def _why(error: ApiError) -> str:
    return error.message or one_line(error)


__all__ = ["ENDINGS", "Ending", "Sent", "read_again", "send"]
