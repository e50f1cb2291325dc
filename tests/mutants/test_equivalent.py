"""Each listed equivalent mutant can still be made."""

from tests.mutants import core
from tests.mutants.equivalent import EQUIVALENT


def test_every_equivalent_mutant_can_be_made() -> None:
    made = {core.key_of(mutant) for mutant in core.everything()}
    assert set(EQUIVALENT) <= made
