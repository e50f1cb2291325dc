"""The command `signoff`, run in this process."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from signoff_client import command


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Runs the command with these variables."""

    patch: pytest.MonkeyPatch
    output: pytest.CaptureFixture[str]

    def run(self, *words: object, **variables: str) -> Result:
        """Run it, with SIGNOFF_ before the names of the variables."""
        self.output.readouterr()
        with self.patch.context() as patch:
            for name, value in variables.items():
                patch.setenv(f"SIGNOFF_{name}", value)
            patch.setattr(sys, "argv", ["signoff", *map(str, words)])
            with pytest.raises(SystemExit) as end:
                command.main()
        out, err = self.output.readouterr()
        assert end.value.code is None or isinstance(end.value.code, int)
        return Result(status=end.value.code or 0, out=out, err=err)
