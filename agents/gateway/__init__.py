"""The only way to a model: pydantic-ai's model layer, in workers only, because importing it is slow."""
