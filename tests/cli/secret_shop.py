"""Jobs that do with a secret what they should not: ``tests.cli.secret_shop:app``."""

import logging
import os
import subprocess
import sys
import threading
import urllib.parse

from fencepost import App, Run, Secret

log = logging.getLogger(__name__)
app = App()


def say(value: str) -> None:
    """Write a value in every way to the output, also in parts that are written one after the other."""
    print("printed:", value)
    print(f"spelled: {value!r} {[value]} {urllib.parse.quote(value)} {value.encode()!r}", file=sys.stderr)
    for each in value:
        os.write(1, each.encode())
    os.write(1, b"\n")
    subprocess.run(["printf", "%s\n", f"by a program: {value}"], check=True)
    log.error("logged: %s", value, extra={"more": value})
    thread = threading.Thread(target=int, args=(f"raised in a thread: {value}",))
    thread.start()
    thread.join()


@app.job(retries=1, backoff="0s")
def leak(run: Run, key: Secret[str], again: Secret[str] = Secret("other")) -> None:  # noqa: B008
    """Say it, then raise it."""
    say(key.reveal())
    say(again.reveal())
    run.log.warning("by the run's own logger: %s", key.reveal())
    run.progress(0.5, f"at {key.reveal()}")
    try:
        int(key.reveal())
    except ValueError as error:
        raise RuntimeError(f"with {again.reveal()}") from error


@app.job
def give(run: Run, key: Secret[str]) -> dict[str, object]:
    """Return it."""
    run.progress(1.0, key.reveal())
    return {"key": key.reveal(), "in": [f"a {key.reveal()} b"], key.reveal(): 1}


@app.job
async def wait_for(key: Secret[str] | None = None) -> object:
    """Return the object itself."""
    return [key]


@app.job(retries=3, backoff="0s")
def pass_on(key: Secret[str]) -> None:
    """Ask for a run with the value as a plain parameter."""
    app.enqueue("plain", params={"word": key.reveal()})


@app.job
def plain(word: str = "") -> None:
    """Take a text."""
