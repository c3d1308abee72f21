"""``python -m fencepost``: the same as the command ``fencepost``."""

import sys

from fencepost.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
