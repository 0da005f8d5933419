"""Serves the tools by the protocol's SDK. This module alone loads the SDK."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations
from msgspec import Struct

from tightship.cli.app import run
from tightship_cli.mcp.tools import TOOLS, InputError, arguments_of

_READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_ALONE = threading.Lock()
"""A command has the process's outputs to itself."""


class Answers(Struct, frozen=True):
    """What the tools answer: by *command* of *program*, with the flags of the *sources* of each.

    Messages show names instead of the paths that are *hidden*.
    """

    program: str
    command: Callable[[Sequence[str]], int]
    sources: Mapping[str, Sequence[str]]
    hidden: Mapping[str, str] = {}

    def answer(self, name: str, given: Mapping[str, object]) -> tuple[str, bool]:
        """Return the JSON that tool *name* answers, or what is wrong; and whether it is the former."""
        tool = TOOLS.get(name)
        if tool is None:
            return f"there is no tool {name}; allowed is {', '.join(TOOLS)}", False
        try:
            flags = arguments_of(tool, given)
        except InputError as error:
            return str(error), False
        code, out, errors = self._run([*tool.words, *self.sources[name], "--output=json", *flags])
        if code == 0:
            return out, True
        for path, shown in self.hidden.items():
            errors = errors.replace(path, shown)
        return errors.strip() or f"exit code {code}", False

    def _run(self, words: Sequence[str]) -> tuple[int, str, str]:
        with _ALONE:
            out, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
            before = sys.stdout, sys.stderr
            sys.stdout, sys.stderr = out, errors
            try:
                code = run(self.program, self.command, words)
            except SystemExit as leaving:  # by the parser, which has told why
                code = leaving.code if isinstance(leaving.code, int) else 1
            finally:
                sys.stdout, sys.stderr = before
            out.seek(0)
            return code, out.read(), errors.getvalue()


def serve(answers: Answers, program: str, version: str) -> int:
    """Serve *answers* until standard input ends."""

    async def listed(_context: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(name) for name in TOOLS])

    async def called(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        given = params.arguments or {}
        text, good = await anyio.to_thread.run_sync(answers.answer, params.name, given)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=not good)

    async def main() -> None:
        server = Server(program, version=version, on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(main)
    return 0


def _tool(name: str) -> Tool:
    row = TOOLS[name]
    schema = {
        "type": "object",
        "properties": {key: each.schema for key, each in row.inputs.items()},
        "required": [key for key, each in row.inputs.items() if not each.flag],
        "additionalProperties": False,
    }
    return Tool(name=name, description=row.description, input_schema=schema, annotations=_READS)
