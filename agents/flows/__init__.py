"""The agents that come with Signoff."""
