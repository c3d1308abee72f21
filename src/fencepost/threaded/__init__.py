"""The real `Runtime`: operating-system clocks, threads, randomness and processes.

This package is the only one in Fencepost that may import them; `ruff` refuses them elsewhere.
"""

from fencepost.threaded.runtime import ThreadedRuntime

__all__ = ["ThreadedRuntime"]
