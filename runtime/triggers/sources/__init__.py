"""Reads what programs leave for triggers: files in watched folders. Each becomes an event of its trigger."""
