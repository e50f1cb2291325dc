"""User actions, one module each: check who asks, validate, write in one transaction, notify after the commit."""
