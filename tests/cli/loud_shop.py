"""An application that logs in its own way, warns, and fails: ``tests.cli.loud_shop:app``."""

import logging
import threading
import warnings

from fencepost import App

log = logging.getLogger(__name__)
logging.basicConfig(format="in my own way: %(message)s")
log.setLevel(logging.DEBUG)
warnings.warn("an old thing", stacklevel=1)
log.info("imported")

app = App(observers=[lambda event: logging.getLogger("watching").info("seen: %s", event.what)])


@app.job
def add(run, a: int, b: int = 2) -> int:
    """Add two numbers."""
    log.debug("adding %s and %s", a, b, extra={"account": 7, "job": "mine"})
    thread = threading.Thread(target=lambda: 1 / 0, name="divider")
    thread.start()
    thread.join()
    return a + b


@app.job(retries=0)
def boom() -> None:
    raise RuntimeError("boom")


logging.getLogger().addHandler(logging.StreamHandler())  # ours takes its place, once this is loaded
