"""Tests of the agents room."""
