"""Commands under the names of the release before."""

from contextlib import suppress
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("stops", "list"), "kill_switch"),
        (("stops", "put", "--reason", "x"), "kill_switch"),
        (("stops", "lift", "7"), "kill_switch"),
        (("readmit", str(UUID(int=1)), "--as", "admin", "--reason", "x"), "release_run"),
        (("alive", "worker"), "healthcheck"),
    ],
)
def test_old_names_work_and_log_a_warning(
    old: tuple[str, ...], new: str, caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(CommandError):  # of its handler, after it has read the arguments
        call_command(*old)
    assert f"manage.py {old[0]} is now {new}" in caplog.text
