"""Reads files of watched folders and entries of streams. Each becomes an event of its trigger."""
