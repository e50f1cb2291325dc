"""The agents that come with Abeyance."""
