"""The public names for authors: `tool`, `agent` and their types."""

from agents.sdk.definitions import *  # noqa: F403
from agents.sdk.definitions import __all__ as __all__
