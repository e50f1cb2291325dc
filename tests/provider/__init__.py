"""Model calls through the real clients of providers, to servers on loopback."""
