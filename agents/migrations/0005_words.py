"""Two models get the names that the code uses. Their tables and columns stay, so both releases find them."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("agents", "0004_brake")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("SentForm", "FormSubmission"),
                migrations.AlterModelTable("FormSubmission", "agents_sentform"),
                migrations.RenameModel("Brake", "RateLimit"),
                migrations.AlterModelTable("RateLimit", "agents_brake"),
            ]
        )
    ]
