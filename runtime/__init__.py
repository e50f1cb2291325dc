"""The durable engine: runs, their journal and everything that moves them forward."""
