"""Names who may read the requests of the release before. Each update is a transaction of its own, so it holds no table.

The release before does not use the column. A request that it opens meanwhile is read by every reviewer, as before.
"""

import json
from typing import Any, ClassVar

from django.db import migrations


def name_readers(apps: Any, _: Any) -> None:
    """Fill the column, once for each rule. If a rule cannot be read, every reviewer must see its requests."""
    rows = apps.get_model("approvals", "Request").objects.exclude(kind="in_doubt")
    for rule in rows.exclude(rule=None).values_list("rule", flat=True).distinct():
        try:
            readers = _list_readers(json.loads(rule))
        except (ValueError, KeyError, TypeError):
            continue
        if readers is not None:
            rows.filter(rule=rule).update(readers=readers)


def _list_readers(demands: dict[str, Any]) -> list[str] | None:
    """Return the keys as `Demands.readers` does; the code of this release, which may change, is not used."""
    stages, steps = demands["stages"], demands.get("escalate", ())
    if any(not (stage["groups"] or stage["people"]) for stage in stages):
        return None
    keys = (
        f"{kind}:{name}"
        for stage in (*stages, *steps)
        for kind, names in (("group", stage["groups"]), ("person", stage["people"]))
        for name in names
    )
    return list(dict.fromkeys(keys))


class Migration(migrations.Migration):
    atomic = False

    dependencies: ClassVar = [("approvals", "0045_edited_preview")]

    operations: ClassVar = [
        migrations.RunPython(name_readers, migrations.RunPython.noop),
    ]
