"""Tests of the documents' statements and examples."""
