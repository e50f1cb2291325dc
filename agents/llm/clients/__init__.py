"""The clients of providers: which client a model has, and what ours do differently from the providers' own."""
