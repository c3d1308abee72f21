"""``python -m fencepost.testing.simulation``."""

import sys

from fencepost.testing.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
