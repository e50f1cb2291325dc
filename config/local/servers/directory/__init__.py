"""A persistent SCIM 2.0 directory: scim2-server's protocol over our own storage on SQLite."""

TOKEN_VARIABLE = "DIRECTORY_TOKEN"  # noqa: S105 - the name, not the token
