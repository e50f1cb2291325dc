"""A SCIM 2.0 directory that keeps its data: scim2-server's protocol over a storage of our own on SQLite."""

TOKEN_VARIABLE = "DIRECTORY_TOKEN"  # noqa: S105 - the name, not the token
