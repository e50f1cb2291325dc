from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("agents", "0001_initial")]

    operations = [migrations.AddField("publishedagent", "title", models.TextField(db_default=""))]
