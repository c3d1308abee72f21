"""Ready-made writers for the items of a chunk, one module each. Shared code is in `table` and `values`."""
