"""How far knowledge spreads: modules that name a concept, modules with one importer, functions with one use."""

import ast
from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.code_figures.sources import Source

EVENTS = "events.py"  # in a folder of CORE
CORE = "runtime/core/"
# The rest of the core is the state machine of a run: stored forms and values that it only uses.
OTHER_CORE = frozenset({"documents", "values"})


def state_machine(sources: Sequence[Source]) -> list[Source]:
    """Return the modules of the core that are neither stored forms nor values."""
    return [
        source
        for source in sources
        if source.path.startswith(CORE)
        and source.path.removeprefix(CORE).split("/")[0] not in OTHER_CORE
    ]


def modules_naming(sources: Sequence[Source], enum: str) -> list[str]:
    """Return the paths of modules that name a member of the enum."""
    return [source.path for source in sources if any(_is_member(n, enum) for n in source.nodes)]


def modules_by_event(sources: Sequence[Source]) -> dict[str, set[str]]:
    """Return the paths of modules that name each class of event, also by its stored type."""
    events = {
        node.name
        for source in sources
        if source.path.startswith(CORE) and source.path.endswith(f"/{EVENTS}")
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and _has_type(node)
    }
    paths = defaultdict[str, set[str]](set)
    for source in sources:
        for node in source.nodes:
            for name in events.intersection(_event_names(node)):
                paths[name].add(source.path)
    return dict(paths)


def single_importers(sources: Sequence[Source]) -> list[tuple[Source, str]]:
    """Return each module that exactly one other module imports, with the path of that one."""
    modules = {source.module: source for source in sources}
    importers = defaultdict[str, list[str]](list)
    for source in sources:
        for module in source.imported(modules.keys()):
            importers[module].append(source.path)
    return [
        (modules[module], paths[0])
        for module, paths in sorted(importers.items())
        if len(paths) == 1
    ]


def private_functions(sources: Sequence[Source]) -> tuple[int, int]:
    """Return the number of private functions and methods, and of those that their module uses once."""
    total = single = 0
    for source in sources:
        uses = Counter(name for node in source.nodes if (name := _used_name(node)))
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_private(node.name):
                total += 1
                single += uses[node.name] == 1
    return total, single


def import_lines(sources: Sequence[Source]) -> int:
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def comment_lines(sources: Sequence[Source]) -> int:
    return sum(
        line.lstrip().startswith("#") for source in sources for line in source.text.splitlines()
    )


def _is_member(node: ast.AST, enum: str) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr=member):
            return name == enum and member.isupper()
    return False


def _has_type(node: ast.ClassDef) -> bool:
    return any(
        isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == "type"
        for field in node.body
    )


def _event_names(node: ast.AST) -> set[str]:
    match node:
        case ast.ImportFrom(module=str(module)) if module.startswith("runtime.core"):
            return {alias.name for alias in node.names}
        case ast.Attribute(value=ast.Name(id="events"), attr=name):
            return {name}
        case ast.Constant(value=str(text)):
            return {text}
    return set()


def _used_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
            return name
    return None


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
