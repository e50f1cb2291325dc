"""The message broker: Celery messages and the doorbell of live pages go out through here."""
