"""The tables of schedules, triggers, their times and events, and webhooks."""
