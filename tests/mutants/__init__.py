"""Bugs planted on purpose, one at a time: does anything notice?

Each mutant is the real code with one thing wrong: a condition left out of a statement, a comparison skipped, a step
taken too early. It has to be caught, by the simulator within so many seeds, or by a test that is named. A mutant that
survives says that a promise could be broken without anybody noticing.

``make mutants`` tries all of them and prints what caught each. The code under `src` knows nothing of this: a mutant is
planted from outside, by replacing the code of a function or a text that is looked up when it is used.
"""
