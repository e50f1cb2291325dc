"""Reads and writes Postgres: a module for each table, or for a statement in which several tables take part."""
