"""The real `Runtime`: clocks, threads, random numbers and processes of the operating system.

This package is the only one in Fencepost that may import them; `ruff` refuses them elsewhere.
"""

from fencepost.threaded.runtime import ThreadedRuntime

__all__ = ["ThreadedRuntime"]
