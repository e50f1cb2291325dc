"""Changes that the tests must see: hand-made ones of the keepers, and generated ones of the pure core and policy."""
