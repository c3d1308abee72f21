"""An application whose jobs end whoever executes them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fencepost import App

app = App()


@app.job(crash_limit=2)
def kill_worker() -> None:
    """End the process that executes this."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(crash_limit=2)
def kill_node() -> None:
    """End the node that executes this, and with it this process."""
    os.kill(int(Path(os.environ["NODE_PID"]).read_text()), signal.SIGKILL)
    signal.pause()
