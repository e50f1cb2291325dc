"""Changes that the tests must see: hand-made ones of store modules, generated ones of the pure core and policy."""
