"""Every small change of a module that its tests should see, as syntax trees.

A comparison, a boolean operator, a sign or a constant becomes another; a condition becomes its opposite; a returned
value becomes None; a statement is omitted. Docstrings, annotations, decorators and `assert_never` stay, and so does
the wording of errors (arguments of a raised exception or of `super().__init__`), which is not promised.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.Mult(),
    ast.Pow: ast.Mult(),
    ast.BitOr: ast.BitAnd(),
    ast.BitAnd: ast.BitOr(),
}
SKIPPED = {"decorator_list", "annotation", "returns", "bases", "type_params"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change: its number in a file, the `text` of its line, the old and the new text."""

    file: str
    number: int
    line: int
    text: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"

    def changed(self, source: str) -> str:
        """Return the text of the file, which is `source`, with the change."""
        tree = ast.parse(source)
        _, other, put = next(islice(_changes(tree), self.number, None))
        put(other)
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants(file: str, source: str) -> Iterator[Mutant]:
    lines = source.splitlines()
    for number, (node, other, _) in enumerate(_changes(ast.parse(source))):
        yield Mutant(
            file=file,
            number=number,
            line=node.lineno,
            text=lines[node.lineno - 1].strip(),
            before=_said(node),
            after=_said(other),
        )


Put = Callable[[ast.AST], object]


def _changes(tree: ast.AST) -> Iterator[tuple[Any, ast.AST, Put]]:
    """Yield each node that can change with another one, and the function that puts that in its place."""
    for node, put in _places(tree):
        for other in _others(node):
            yield node, other, put


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, Put]]:
    """Yield every node below this one in the order of the text, and the function that replaces it."""
    for field, value in ast.iter_fields(node):
        if field in SKIPPED or (isinstance(node, ast.Raise) and field == "exc") or _words(node):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _is_docstring(child):
                at = partial(setattr, node, field)
                yield child, partial(value.__setitem__, index) if value is not child else at
                yield from _places(child)


def _others(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            return
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            yield ast.Compare(left=left, ops=[COMPARISONS[type(op)]], comparators=comparators)
        case ast.BoolOp(op=ast.And(), values=values):
            yield ast.BoolOp(op=ast.Or(), values=values)
        case ast.BoolOp(op=ast.Or(), values=values):
            yield ast.BoolOp(op=ast.And(), values=values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield ast.BinOp(left=left, op=ARITHMETIC[type(op)], right=right)
        case ast.Constant(value=bool() as value):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value=value + 1)
        case ast.Constant(value=str() as value):
            yield ast.Constant(value=f"{value}?")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if _is_plain(test):
            changed = copy.copy(node)
            changed.test = ast.UnaryOp(op=ast.Not(), operand=test)
            yield changed
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield ast.Return(value=ast.Constant(value=None))
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _words(node: ast.AST) -> bool:
    """Tell whether the node is the text of an error."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__"


def _is_plain(test: ast.expr) -> bool:
    """Tell whether no other operator changes the test into its opposite."""
    return not isinstance(test, ast.Compare | ast.UnaryOp)


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _said(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:80]
