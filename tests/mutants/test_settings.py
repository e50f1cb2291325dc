"""Every setting of approvals has a test that fails if the setting does nothing: `make mutants` makes it do nothing."""

from tests.docs.pages import functions_of
from tests.mutants import settings
from tests.mutants.tried import ROWS, Row

ENTRIES: dict[str, Row] = {row.setting: row for row in ROWS if row.setting}


def test_every_setting_has_an_entry() -> None:
    defined, others = settings.defined(), settings.others()
    assert sorted(defined - ENTRIES.keys() - others.keys()) == []
    assert sorted((ENTRIES.keys() | others.keys()) - defined) == []
    assert sorted(ENTRIES.keys() & others.keys()) == []


def test_every_entry_names_its_one_test() -> None:
    assert len(ENTRIES) == sum(bool(row.setting) for row in ROWS)
    for name, row in ENTRIES.items():
        [test] = row.tests
        path, _, function = test.partition("::")
        assert function in functions_of(path), name
