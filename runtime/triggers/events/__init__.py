"""Starts runs when events come: triggers with a filter, a mapping to the input of an agent, and limits."""
