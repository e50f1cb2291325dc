"""The outbox: durable messages to people and programs, sent at least once by the sweepers."""
