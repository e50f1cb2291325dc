"""The message broker: sends Celery messages and live updates."""
