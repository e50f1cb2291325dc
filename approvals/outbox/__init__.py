"""The outbox: durable messages to other programs, sent at least once by the sweepers."""
