"""The report's table, and the fence's beside it."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

from primacy.fence import sql


def make_fence(apps: Any, editor: Any) -> None:
    sql.create(editor.connection)


class Migration(migrations.Migration):
    initial = True
    operations = (
        migrations.CreateModel(
            name="Report",
            fields=[
                ("id", models.BigAutoField(primary_key=True)),
                ("token", models.BigIntegerField()),
                ("pid", models.IntegerField()),
            ],
        ),
        migrations.RunPython(make_fence, migrations.RunPython.noop),
    )
