"""What is changed in a function: one operator, constant, condition, result or statement at a time."""

from __future__ import annotations

import ast
import difflib
import gc
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

from msgspec import Struct

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
ENTERED = "__entered__"
"""The global function that :func:`probed` code calls with the first line of each block that it enters."""


class Mutant(Struct, frozen=True, kw_only=True):
    """One change: the *number* of the place in the function *name* of *file* that begins in *line*.

    *block* is the first line of the statements among which the place is.
    """

    file: Path
    name: str
    line: int
    number: int
    block: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name} #{self.number}"

    def code(self) -> CodeType:
        """Return the changed function's code."""
        tree = ast.parse(self.file.read_text())
        _change(tree, self)
        ast.fix_missing_locations(tree)
        found = code_of(compile(tree, str(self.file), "exec"), self.name, self.line)
        assert found is not None, self
        return found

    def diff(self) -> str:
        """Return the change as lines removed and added."""
        tree = ast.parse(self.file.read_text())
        before = ast.unparse(_function(tree, self))
        after = ast.unparse(_change(tree, self))
        lines = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0)
        return "\n".join(each for each in lines if each[:3] not in ("---", "+++") and not each.startswith("@@"))


def mutants(file: Path) -> list[Mutant]:
    """Return all mutants of the functions of *file*."""
    return [
        Mutant(file=file, name=name, line=first_line(function), number=number, block=place[0])
        for name, function in functions(ast.parse(file.read_text()))
        for number, place in enumerate(_places(function))
    ]


def probed(file: Path) -> dict[tuple[str, int], CodeType]:
    """Return the code of the functions of *file*, by name and line, with a call of :data:`ENTERED` in each block."""
    tree = ast.parse(file.read_text())
    keys = [(name, first_line(each)) for name, each in functions(tree)]
    for function in [each for _, each in functions(tree)]:
        for node in list(ast.walk(function)):
            for _, block in ast.iter_fields(node):
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    line = ast.Constant(block[0].lineno)
                    call = ast.Expr(ast.Call(ast.Name(ENTERED, ast.Load()), [line], []))
                    block.insert(0, ast.fix_missing_locations(ast.copy_location(call, block[0])))
    code = compile(tree, str(file), "exec")
    return {key: found for key in keys if (found := code_of(code, *key)) is not None}


def live_functions() -> dict[tuple[str, str], list[FunctionType]]:
    """Return this process's functions by file and name; what a function has made belongs to it."""
    live: dict[tuple[str, str], list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            live.setdefault((code.co_filename, code.co_qualname.partition(".<locals>")[0]), []).append(each)
    return live


def become(live: Iterable[FunctionType], code: CodeType) -> list[FunctionType]:
    """Give those of *live* that *code* has, or that it makes, their code in it; return them."""
    changed = []
    for each in live:
        old = each.__code__
        new = code_of(code, old.co_qualname, old.co_firstlineno)
        # A cell is known by its place among those of the function.
        if new is not None and new.co_freevars in ((), old.co_freevars):
            each.__code__ = new.replace(co_freevars=old.co_freevars)
            changed.append(each)
    return changed


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Yield the functions of a module and its classes' methods with their qualified names."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, _Function):
            yield prefix + each.name, each
        elif isinstance(each, ast.ClassDef):
            yield from functions(each, f"{prefix}{each.name}.")


def code_of(code: CodeType, name: str, line: int) -> CodeType | None:
    """Return the code of the function of that qualified *name* and first *line* within *code*."""
    if (code.co_qualname, code.co_firstlineno) == (name, line):
        return code
    inner = (code_of(each, name, line) for each in code.co_consts if isinstance(each, CodeType))
    return next((each for each in inner if each is not None), None)


def first_line(function: _Function) -> int:
    """Return the line in which *function* begins, with its decorators."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _function(tree: ast.AST, mutant: Mutant) -> _Function:
    return next(each for name, each in functions(tree) if (name, first_line(each)) == (mutant.name, mutant.line))


def _change(tree: ast.AST, mutant: Mutant) -> _Function:
    function = _function(tree, mutant)
    _, parent, field, index, new = list(_places(function))[mutant.number]
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new
    return function


_Place = tuple[int, ast.AST, str, int | None, ast.AST]


def _places(node: ast.AST, block: int = 0) -> Iterator[_Place]:
    """Yield in which block something is changed below *node*, and what stands there then."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        several = isinstance(value, list)
        for number, each in enumerate(value if several else [value]):
            if not isinstance(each, ast.AST) or isinstance(each, ast.JoinedStr | ast.Raise | ast.Assert):
                continue  # words for people
            within = value[0].lineno if several and isinstance(each, ast.stmt) else block
            new = _instead(each)
            if new is not None:
                yield within, node, name, number if several else None, new
            yield from _places(each, within)


def _instead(node: ast.AST) -> ast.AST | None:  # noqa: PLR0911 - a table
    """Return what stands in the place of *node*, ``None`` for a node that stays."""
    match node:
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            return ast.Constant(value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Name(id=name) if name in _CALLED:
            return ast.Name(_CALLED[name], node.ctx)
        case ast.Return(value=value) if value is not None and not _is_none(value):
            return ast.Return(ast.Constant(None))
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call() as test, body=body, orelse=orelse):
            return ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, orelse, body)
        case ast.comprehension(ifs=[_, *rest]):
            return ast.comprehension(node.target, node.iter, rest, node.is_async)
        case ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete():
            return ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Await()):
            return ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return ast.Pass()
    swapped = _SWAPPED.get(type(node))
    return None if swapped is None else swapped()


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


__all__ = ["ENTERED", "Mutant", "become", "code_of", "first_line", "functions", "live_functions", "mutants", "probed"]
