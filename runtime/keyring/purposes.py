"""Lists the purposes of keys."""

JOURNAL = "journal"
CONTINUATION = "continuation"
SECRETS = "secrets"
DECISIONS = "decisions"
EXPORTS = "exports"
REQUESTS = "requests"
AUDIT = "audit"
RIGHTS = "rights"
PURPOSES = (JOURNAL, CONTINUATION, SECRETS, REQUESTS, AUDIT, DECISIONS, EXPORTS, RIGHTS)


# The processes that sign for these purposes and the processes that verify are not the same.
SIGNED = frozenset({DECISIONS, EXPORTS, RIGHTS})

# Its keys are derived from those of the journal: see archive_keys.
ARCHIVES = "archives"
