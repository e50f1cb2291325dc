"""Prints how large and how tangled the code is: `make figures`, and its bounds in `make check`.

Without an option all figures are printed with their bounds and goals, after the lines and files of each package.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.code_figures import bounds, names, uses
from tests.code_figures.bounds import Bound, text_of
from tests.code_figures.measure import Figures, count_lines, measure
from tests.code_figures.sources import PRODUCT, Source, read_sources
from tests.docs.words import say

# These need a running product, and the test reads their bound.
TRACED = {"modules from click to effect": "tests/execution/test_cost.py"}


def main() -> int:
    options = _parser().parse_args()
    if options.names:
        lines = _vague_names(options.names)
    elif options.twice:
        lines = _shared_names()
    elif options.single:
        lines = _single_importers()
    else:
        return _compare(options)
    for line in lines:
        say(line)
    return 0


def problems_of(figures: Figures, table: Mapping[str, Bound]) -> Iterator[str]:
    """Return a line for each figure over its bound, or without a row in the table."""
    for name, value in figures.items():
        if name not in table:
            yield f"{name}: it has no row in {bounds.TABLE.name}"
        elif not table[name].allows(value):
            yield f"{name}: {text_of(value)}, and the bound is {text_of(table[name].limit)}"


def _compare(options: argparse.Namespace) -> int:
    figures, table = measure(), bounds.read()
    if options.write:
        bounds.write(bounds.with_limits(table, figures))
    elif options.check:
        problems = [*problems_of(figures, table), *_unused_reasons()]
        for problem in problems:
            say(problem)
        return int(bool(problems))
    else:
        for line in (*_packages(), "", *_rows(figures, table)):
            say(line)
    return 0


def _packages() -> Iterator[str]:
    packages = defaultdict[str, list[Source]](list)
    for source in read_sources(*PRODUCT):
        packages[source.package].append(source)
    for package, sources in sorted(packages.items()):
        yield f"{package:44} {count_lines(sources):7} lines {len(sources):4} files"


def _rows(figures: Figures, table: Mapping[str, Bound]) -> Iterator[str]:
    yield f"{'figure':44} {'today':>9} {'bound':>9} {'goal':>9}"
    for name, bound in table.items():
        value = text_of(figures.get(name))
        row = f"{name:44} {value:>9} {text_of(bound.limit):>9} {text_of(bound.goal):>9}"
        yield f"{row}  {TRACED.get(name, '')}".rstrip()


def _vague_names(folder: str) -> Iterator[str]:
    for source in read_sources(folder):
        for binding in sorted(names.bindings(source), key=lambda binding: binding.line):
            if binding.is_vague:
                yield f"{binding.path}:{binding.line}: {binding.name}"


def _shared_names() -> Iterator[str]:
    sources = [source for source in read_sources(*PRODUCT) if not source.is_migration]
    for shared in (names.shared_class_names(sources), names.shared_module_names(sources)):
        for name, sites in shared.items():
            yield f"{name}: {' '.join(sites)}"


def _single_importers() -> Iterator[str]:
    for source, importer in uses.single_importers(read_sources(*PRODUCT)):
        yield f"{source.lines:5} {source.path} {importer}"


def _unused_reasons() -> Iterator[str]:
    reasons = names.read_allowed()
    vague = {
        (binding.path, binding.name)
        for path in {path for path, _ in reasons}
        for source in read_sources(*PRODUCT)
        if source.path == path
        for binding in names.bindings(source)
        if binding.is_vague
    }
    for path, name in reasons.keys() - vague:
        yield f"{names.ALLOWED.name}: {path} binds no {name}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make figures", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--check", action="store_true", help="print only the figures over their bound"
    )
    only.add_argument("--write", action="store_true", help="write today's figures as bounds")
    only.add_argument("--names", metavar="FOLDER", help="list the vague names of a folder")
    only.add_argument(
        "--twice",
        action="store_true",
        help="list the names of several classes, then those of modules in more than three packages",
    )
    only.add_argument(
        "--single",
        action="store_true",
        help="list the modules with one importer: their lines, path and importer",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
