"""Starts runs that no person starts by hand: by schedules. Other triggers, such as webhooks, would be here too."""
