"""Reads files of watched folders, entries of streams, and objects of buckets. Each becomes an event of its trigger."""
