"""The tables of triggers, the acts of people on them, their occurrences, received events, webhooks, and sources."""
