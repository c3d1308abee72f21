"""The application of `logs.py`: a job that does nothing, one that prints a line, and one that prints many."""

import time

from fencepost import App

app = App()


@app.job
def noop() -> None:
    """Do nothing."""


@app.job
def line() -> None:
    """Print a line."""
    print("a line of sixty characters, as jobs print them now and then")


@app.job
def lines(per_s: int, seconds: int) -> None:
    """Print so many lines a second."""
    began_at = time.monotonic()
    for number in range(per_s * seconds):
        if number % 100 == 0:
            time.sleep(max(0.0, began_at + number / per_s - time.monotonic()))
        print("line", number, "of sixty characters, as jobs print them in a loop")
