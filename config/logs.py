"""Keeps secrets that are part of an address out of the log."""

import logging
import re

_LINK = re.compile(r"/(password|hooks|slack/link)/[^/?\s]+")


def hide_links(record: logging.LogRecord) -> bool:
    """Shorten the addresses of links to use once and of webhooks in the arguments of a record. It is always logged."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            _LINK.sub(r"/\1/…", arg) if isinstance(arg, str) else arg for arg in record.args
        )
    return True
