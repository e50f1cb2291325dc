"""Trials in processes that have everything imported and the tests collected: in each, one function is exchanged.

Code inside a function is exchanged in place, so every reference to the function gets the mutant. Only tests in files
that call the function can see that, so those are run, the likeliest and shortest first. Code outside of functions, or
called before the first test, needs a trial that imports everything anew.
"""

import ast
import importlib
import inspect
import os
import pickle
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.operators import Mutant
from tests.mutants.trials import OFF, Seen, code_of, file_of, forget, forked, settle

Place = tuple[str, str]  # a file, and the qualified name of a function that is not inside another


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """`walked` are the numbers of the mutants whose function the histories come to, `near` whose file."""

    walked: frozenset[int]
    near: frozenset[int]
    session: "Connection[Any, Any]"

    def trial(self, number: int, *, histories: bool, within: float) -> Seen | None:
        """Try a mutant with the tests of the histories, or with all others; None if it cannot be exchanged."""
        self.session.send((number, histories, within))
        answer = self.session.recv()
        return None if answer is None else Seen(answer)


@contextmanager
def session(mutants: Sequence[Mutant], tests: Sequence[str], histories: str) -> Iterator[Warm]:
    """One in which these can be tried; `histories` is the file whose tests take longest."""
    ours, theirs = Pipe()
    child = os.fork()
    if child == 0:
        ours.close()
        try:
            settle()
            forget()
            pytest.main([*OFF, *tests], plugins=[_Session(mutants, histories, theirs)])
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        walked, near = ours.recv()  # EOFError if the tests fail as it is
        yield Warm(walked=frozenset(walked), near=frozenset(near), session=ours)
    os.waitpid(child, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """One that was collected: where it comes to, and how long that takes."""

    item: pytest.Item
    file: str
    places: set[Place]
    seconds: float


class _Session:
    """A pytest plugin that runs collected tests on request."""

    def __init__(
        self, mutants: Sequence[Mutant], histories: str, asked: "Connection[Any, Any]"
    ) -> None:
        self._mutants = mutants
        self._histories = histories
        self._asked = asked
        self._files = {str(file_of(one.module)) for one in mutants}
        self._early: set[Place] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        with self._watched(self._early):
            yield
            self._fill_caches()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        assert not session.testsfailed
        tests = self._learnt(session)
        walked = {place for one in tests if one.file == self._histories for place in one.places}
        places = [place_of(one) for one in self._mutants]
        files = {file for file, _ in walked}
        near = [n for n, one in enumerate(self._mutants) if str(file_of(one.module)) in files]
        self._asked.send(([n for n, place in enumerate(places) if place in walked], near))
        with suppress(EOFError):  # every mutant was tried
            while True:
                number, histories, within = self._asked.recv()
                those = [one for one in tests if (one.file == self._histories) == histories]
                trial = self._trial(session, self._mutants[number], places[number], those)
                self._asked.send(None if trial is None else str(forked(trial, within=within)))
        return True

    def _trial(
        self, session: pytest.Session, mutant: Mutant, place: Place | None, tests: list[_Test]
    ) -> Callable[[], bool] | None:
        if place is None or place in self._early:
            return None
        function, code = _function(mutant, place), _code(mutant, place)
        if function.__code__.co_freevars != code.co_freevars:
            return None
        # All tests of a file that comes to the place, since any may make its shared fixtures.
        files = {one.file for one in tests if place in one.places}
        chosen = sorted(
            (one for one in tests if one.file in files),
            key=lambda one: (place not in one.places, one.seconds),
        )

        def tried() -> bool:
            function.__code__ = code
            return all(_passes(session, one.item) for one in chosen)

        return tried

    def _fill_caches(self) -> None:
        """Fill the caches of pure functions once, so that not every trial has to."""
        for module in {one.module for one in self._mutants}:
            for one in vars(importlib.import_module(module)).values():
                if hasattr(one, "cache_clear") and not inspect.signature(one).parameters:
                    one()

    def _learnt(self, session: pytest.Session) -> list[_Test]:
        """Run all tests in a process, and return the result and duration of each."""
        with tempfile.NamedTemporaryFile() as file:

            def tested() -> bool:
                found = []
                for item in session.items:
                    places: set[Place] = set()
                    began_at = time.process_time()
                    with self._watched(places):
                        if not _passes(session, item):
                            return False
                    found.append((places, time.process_time() - began_at))
                pickle.dump(found, file)
                file.flush()
                return True

            assert forked(tested, within=300.0) is Seen.GREEN
            file.seek(0)
            found = pickle.load(file)  # noqa: S301
        return [
            _Test(item=item, file=item.nodeid.partition("::")[0], places=places, seconds=seconds)
            for item, (places, seconds) in zip(session.items, found, strict=True)
        ]

    @contextmanager
    def _watched(self, places: set[Place]) -> Iterator[None]:
        """Notes which functions are called."""

        def note(frame: types.FrameType, event: str, _: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in self._files:
                places.add((code.co_filename, code.co_qualname.partition(".<locals>")[0]))

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)


def _passes(session: pytest.Session, item: pytest.Item) -> bool:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    return not session.testsfailed


def place_of(mutant: Mutant) -> Place | None:
    """The function that it changes, unless it changes something else."""
    file = file_of(mutant.module)
    node: Any = _tree(file)
    names = []
    for field, index in mutant.path:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
            if not isinstance(node, ast.ClassDef):
                return (str(file), ".".join(names)) if field == "body" else None
        node = getattr(node, field) if index is None else getattr(node, field)[index]
    return None


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _function(mutant: Mutant, place: Place) -> types.FunctionType:
    found: Any = sys.modules[mutant.module]
    for name in place[1].split("."):
        found = inspect.getattr_static(found, name)
        if isinstance(found, property):
            found = found.fget
        found = inspect.unwrap(getattr(found, "__func__", found))  # of a static or class method
    assert isinstance(found, types.FunctionType), place
    return found


def _code(mutant: Mutant, place: Place) -> types.CodeType:
    codes = [code_of(mutant)]
    for code in codes:  # and those inside it
        if code.co_qualname == place[1]:
            return code
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
    raise AssertionError(place)
