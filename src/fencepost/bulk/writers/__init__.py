"""Ways to write the items of a chunk, ready made: one module each. What they share is in `table` and `values`."""
