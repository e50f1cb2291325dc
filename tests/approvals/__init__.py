"""Tests of the approvals room."""
