"""Pure rules, without input or output: time and random numbers are arguments, and nothing blocks."""
