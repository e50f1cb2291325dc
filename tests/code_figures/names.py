"""Names that say nothing about their value, and names that several classes or modules bear."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from tests.code_figures.sources import Source

VAGUE = re.compile(
    r"found|one|given|shown|said|place|part|where|why|known|wanted|held|what|left|kept|made|told|chosen|named|opened|"
    r"asked|looked|seen|posted|taken|rest|others|gone|beside|together|lent|stands|most|more|own|same|done|whole"
)
# Django finds these by their name.
REQUIRED_CLASSES = frozenset({"Command", "Meta", "Migration"})
REQUIRED_MODULES = frozenset({"__init__", "__main__", "admin", "apps", "errors", "models", "urls"})
PACKAGES_PER_NAME = 3
ALLOWED = Path(__file__).with_name("allowed_names.txt")

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A place where a variable, parameter, field or function gets its name; `name` has no leading underscores."""

    path: str
    line: int
    name: str

    @property
    def is_vague(self) -> bool:
        return VAGUE.fullmatch(self.name) is not None


def bindings(source: Source) -> Iterator[Binding]:
    """Return all bindings but those of a comprehension of one line, whose value is in sight."""
    nodes: list[ast.AST] = [source.tree]
    while nodes:
        node = nodes.pop()
        nodes.extend(_children(node))
        name = _bound_name(node)
        if name and name not in {"self", "cls"}:
            line = getattr(node, "lineno", 0)
            yield Binding(path=source.path, line=line, name=name.lstrip("_"))


def read_allowed() -> dict[tuple[str, str], str]:
    """Return the reason for each vague name that stays, by path and name."""
    reasons = {}
    for line in ALLOWED.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            path, name, reason = line.split(maxsplit=2)
            reasons[path, name] = reason
    return reasons


def shared_class_names(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Return the names of several classes, with `path:line` of each. `_Row` and `Row` are the same name.

    The client is a package of its own, with names of the same things.
    """
    classes = defaultdict[str, list[str]](list)
    for source in sources:
        if source.path.startswith("client/"):
            continue
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and node.name not in REQUIRED_CLASSES:
                classes[node.name.lstrip("_")].append(f"{source.path}:{node.lineno}")
    return {name: sites for name, sites in sorted(classes.items()) if len(sites) > 1}


def shared_module_names(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Return the names of modules in more than three packages, with their paths."""
    modules = defaultdict[str, list[str]](list)
    for source in sources:
        modules[PurePath(source.path).stem].append(source.path)
    return {
        name: paths
        for name, paths in sorted(modules.items())
        if len(paths) > PACKAGES_PER_NAME and name not in REQUIRED_MODULES
    }


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _COMPREHENSIONS) and node.lineno == node.end_lineno:
        for generator in node.generators:
            yield from (generator.iter, *generator.ifs)
        yield from (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
    else:
        yield from ast.iter_child_nodes(node)


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return node.name
        case ast.MatchMapping():
            return node.rest
        case ast.alias():
            return node.asname
    return None
