"""Starts runs that no person starts by hand: by schedules, webhooks, watched sources and events."""
