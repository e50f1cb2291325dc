"""Notices: people are told on the channels that they chose, by the outbox, that requests wait for them."""
