"""Models get the names that the code uses. Their tables and columns stay, so both releases find them."""

from django.db import migrations

RENAMED = {
    "Base": "CompactionBase",
    "Content": "Blob",
    "ContentUse": "BlobReference",
    "OutsideEvent": "ExternalEvent",
    "Stop": "KillSwitch",
    "Loss": "LostLease",
}


class Migration(migrations.Migration):
    dependencies = [("runtime", "0028_signal_number")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                operation
                for old, new in RENAMED.items()
                for operation in (
                    migrations.RenameModel(old, new),
                    migrations.AlterModelTable(new, f"runtime_{old.lower()}"),
                )
            ]
        )
    ]
