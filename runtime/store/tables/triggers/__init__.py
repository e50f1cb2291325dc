"""The tables of schedules, triggers, their times and events, webhooks, and sources."""
