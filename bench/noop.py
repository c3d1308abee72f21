"""The application of `throughput.py`: one job that does nothing. Its ledger is the one that FENCEPOST_URL names."""

from fencepost import App

app = App()


@app.job
def noop() -> None:
    """Do nothing."""
