"""All figures, from syntax trees, other files of the repository and `git log`."""

import statistics
from collections.abc import Sequence
from pathlib import PurePath

from config.env.environment import ROOT
from tests.code_figures import names, uses
from tests.code_figures.sources import PRODUCT, Source, read_sources
from tests.docs.figures import git
from tests.docs.words import list_files, read_files

Figures = dict[str, float]

ENUMS = ("Verdict", "GateKind", "EffectClass")
COMMITS = 200
SHORT = 80  # lines of a module that may as well join its importer
ADRS = "docs/explanation/adr"


def measure() -> Figures:
    """Return all figures by name. Those of commits are left out in a clone without the whole history."""
    sources = read_sources(*PRODUCT)
    code = [source for source in sources if not source.is_migration]
    return {**_sizes(sources), **_names(code), **_uses(code), **_files(), **_commits()}


def _sizes(sources: Sequence[Source]) -> Figures:
    product, tests = count_lines(sources), count_lines(read_sources("tests"))
    migrations = [source for source in sources if source.is_migration]
    machine = uses.state_machine(sources)
    return {
        "lines of the product": product,
        "modules of the product": sum(source.lines > 1 for source in sources),
        "lines of migrations": count_lines(migrations),
        "migrations": len(migrations),
        "lines of tests": tests,
        "lines of tests per line of the product": round(tests / product, 3),
        "lines of the state machine of a run": count_lines(machine),
        "modules of the state machine of a run": len(machine),
    }


def _names(code: Sequence[Source]) -> Figures:
    bindings = [binding for source in code for binding in names.bindings(source)]
    vague = [binding for binding in bindings if binding.is_vague]
    allowed = names.read_allowed()
    return {
        "vague names": len(vague),
        "vague names, % of names": _percent(len(vague), len(bindings)),
        "vague names without a reason": sum(
            (binding.path, binding.name) not in allowed for binding in vague
        ),
        "class names of several classes": len(names.shared_class_names(code)),
        "module names in more than three packages": len(names.shared_module_names(code)),
    }


def _uses(code: Sequence[Source]) -> Figures:
    events = uses.modules_by_event(code)
    single = [source for source, _ in uses.single_importers(code)]
    private, private_once = uses.private_functions(code)
    lines = count_lines(code)
    return {
        **{f"modules that name {enum}": len(uses.modules_naming(code, enum)) for enum in ENUMS},
        "modules that name an event": len(set().union(*events.values())),
        "modules that name the same event": max(map(len, events.values())),
        "modules with one importer": len(single),
        "modules with one importer, lines": count_lines(single),
        "modules with one importer, under 80 lines": sum(source.lines < SHORT for source in single),
        "private functions": private,
        "private functions used once": private_once,
        "private functions used once, %": _percent(private_once, private),
        "lines of imports, %": _percent(uses.import_lines(code), lines),
        "lines of comments, %": _percent(uses.comment_lines(code), lines),
    }


def _files() -> Figures:
    contracts = (ROOT / ".importlinter").read_text("utf-8").splitlines()
    examples = [path for path in list_files("tests/stored/*") if not path.endswith(".py")]
    records = dict(read_files(f"{ADRS}/*.md"))
    return {
        "lines of .importlinter": len(contracts),
        "contracts of .importlinter": sum("[importlinter:contract:" in line for line in contracts),
        "stored schemas": len(
            {part for path in examples if (part := path.split("/")[2]).isdigit()}
        ),
        "stored examples": len(examples),
        "words of docs": sum(
            len(text.split()) for _, text in read_files("docs/*.md", f":!{ADRS}/*")
        ),
        "words of decision records": sum(len(text.split()) for text in records.values()),
        "decision records": sum(PurePath(path).name[0].isdigit() for path in records),
    }


def _commits() -> Figures:
    if git("rev-parse", "--is-shallow-repository") != "false":
        return {}
    log = git("log", f"-{COMMITS}", "--no-merges", "--format=%x00", "--name-only")
    counts = sorted(len(paths.split()) for paths in log.split("\0")[1:])
    return {
        "files per commit, median": statistics.median(counts),
        "files per commit, 90th percentile": counts[len(counts) * 9 // 10],
    }


def count_lines(sources: Sequence[Source]) -> int:
    return sum(source.lines for source in sources)


def _percent(number: int, total: int) -> float:
    return round(100 * number / total, 2)
