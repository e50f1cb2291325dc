"""Who may read a request, of those who decide its risk: the groups and people whom its rule names."""

import json
from typing import Any, ClassVar

from django.db import migrations, models


def name_readers(apps: Any, _: Any) -> None:
    """Fill the column, once for each rule. If a rule cannot be read, every reviewer must see its requests."""
    rows = apps.get_model("approvals", "Request").objects.exclude(kind="in_doubt")
    for rule in rows.exclude(rule=None).values_list("rule", flat=True).distinct():
        try:
            readers = _readers(json.loads(rule))
        except (ValueError, KeyError, TypeError):
            continue
        if readers is not None:
            rows.filter(rule=rule).update(readers=readers)


def _readers(demands: dict[str, Any]) -> list[str] | None:
    if any(not (stage["groups"] or stage["people"]) for stage in demands["stages"]):
        return None
    found = [
        f"{kind}:{name}"
        for one in (*demands["stages"], *demands.get("escalate", ()))
        for kind, names in (("group", one["groups"]), ("person", one["people"]))
        for name in names
    ]
    return list(dict.fromkeys(found))


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0043_heads_and_voters")]

    operations: ClassVar = [
        migrations.AddField("request", "readers", models.JSONField(null=True)),
        migrations.RunPython(name_readers, migrations.RunPython.noop),
    ]
