"""The rows of files in the archive."""
