"""The rules, free of input and output: time is an argument, nothing here blocks, nothing here is random."""
