"""Whether anybody is there to advance runs."""

from datetime import timedelta

from django.db.models.functions import Now

from runtime.models import Worker


def worker_beats(within: timedelta) -> bool:
    """Whether a worker's last beat is younger than `within`, by the database's clock."""
    return Worker.objects.filter(beat_at__gt=Now() - within).exists()
