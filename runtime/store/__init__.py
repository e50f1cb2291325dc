"""What is kept in Postgres: a module for each table, or for a statement that several tables take part in."""
