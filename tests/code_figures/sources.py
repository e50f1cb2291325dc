"""The Python files of the product and of the tests, with their syntax trees."""

import ast
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from tests.docs.words import read_files

PRODUCT = ("runtime", "approvals", "agents", "config", "client")


@dataclass(frozen=True)
class Source:
    """A Python file; `path` is relative to the root of the repository."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        return str(PurePath(self.path).parent)

    @property
    def module(self) -> str:
        path = self.path.removeprefix("client/")  # the folder of a wheel of its own
        return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_migration(self) -> bool:
        return "/migrations/" in self.path

    def imported(self, modules: Collection[str]) -> set[str]:
        """Return those of the modules that this file imports, or imports a name of."""
        imports = set[str]()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    imports.add(submodule if submodule in modules else node.module or "")
        return imports & set(modules)


def read_sources(*folders: str) -> list[Source]:
    """Return the files of these folders that have any text."""
    patterns = [f"{folder.rstrip('/')}/*.py" for folder in folders]
    return [Source(path, text) for path, text in read_files(*patterns) if text]
