"""The old place of `agents.sdk.scripts`, for one release."""
