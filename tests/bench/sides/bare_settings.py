"""The settings of the bare views: those of ours without middleware."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "tests.bench.sides.bare_views"
MIDDLEWARE = []
