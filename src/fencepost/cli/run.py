"""``fencepost run``: runs a node.

This process renews the node's lease, plans, claims and records. Jobs execute in worker processes, which it can kill, so
that no job can keep it from renewing. It imports the application only to read its jobs.

The first SIGTERM, SIGINT or SIGHUP drains: the node claims no more, gives its runs the grace to end, and returns the
rest. The second ends the process at once, and the guardians of the workers end what still runs.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli import messages
from fencepost.cli.applications import app_spec
from fencepost.cli.exits import Exit
from fencepost.cli.ledger_options import LedgerUrlOption
from fencepost.cli.node_logs import PREPARE, configure_node
from fencepost.core.duration import typed_duration, typed_seconds
from fencepost.core.timings import SHUTDOWN_GRACE
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.app import App
    from fencepost.app.composing import Composed

_SIGNALS = ("TERM", "INT", "HUP")  # HUP: the terminal was closed
_POLL_EVERY_S = 1.0  # how late it is noticed that the node has left by itself; a signal wakes at once
_SAME_SIGNAL_S = 0.5  # timeout(1), or a terminal together with a shell, sends every signal twice


def run(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="APP",
            help="The application, as package.module:app. Default: $FENCEPOST_APP, else app in fencepost.toml.",
            show_default=False,
        ),
    ] = "",
    *,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Worker processes: runs at once. Default: two per processor, at least 4."),
    ] = None,
    threads: Annotated[
        bool, typer.Option("--threads", help="Execute jobs on threads of this process, which cannot be killed.")
    ] = False,
    queues: Annotated[
        str | None, typer.Option(metavar="A,B", help="The queues from which to take runs.", show_default=False)
    ] = None,
    ledger: LedgerUrlOption = "",
    ttl: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="After how long others take over if this node stops renewing its lease.",
            show_default=False,
        ),
    ] = None,
    generation: Annotated[
        int | None, typer.Option(min=0, help="The number of this deploy; an older one overwrites nothing.")
    ] = None,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="The time that running jobs have to end when this node is stopped.")
    ] = SHUTDOWN_GRACE,
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="text, json, or app: as the application logs.")
    ] = "text",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log every lease, and every run that starts and succeeds.")
    ] = False,
) -> int:
    """Run the jobs of an application: start one such node per machine, or as many as you like.

    Settings come from the application, its environment (FENCEPOST_URL, …) and fencepost.toml;
    the options here override them. Logs go to standard error; on a terminal, they show
    every run that starts and succeeds.

    SIGTERM, SIGHUP and Ctrl-C drain within the grace; a second one ends at once (exit code 128 + its number).

    Exit codes: 0 stopped normally, or drained (fencepost nodes drain); 2 it could not start; 70 a part of it
    failed, and it left.

    Example: fencepost run shop.jobs:app --workers 8 --queues mail,default
    """
    if log_format not in ("text", "json", "app"):
        raise ConfigurationError(f"--log-format {log_format!r} is unknown; it is text, json or app")
    loaded = configure_node(log_format=log_format, is_verbose=verbose)
    grace_s = typed_seconds(grace, what="--grace")
    options = {
        "url": ledger or None,
        "slots": workers,
        "queues": queues,
        "ttl": typed_duration(ttl, what="--ttl") if ttl else ttl,
        "generation": generation,
    }
    spec = app_spec(spec, how="behind fencepost run")
    app = _loaded(spec, options)
    loaded()
    return Supervision(app, spec, threads=threads, log_format=log_format).run(grace_s)


class Supervision:
    """One node in this process, from start to stop."""

    def __init__(self, app: App, spec: str, *, threads: bool, log_format: str) -> None:
        self._app = app
        self._log_format = log_format
        self._spec = spec
        self._threads = threads
        self._stop_requested = app.runtime.event()
        self._stop_requested_at: float | None = None
        self._is_ending = False

    def run(self, grace_s: float) -> int:
        """Run until a signal requests the end, or the node leaves: it was drained, or a part of it failed."""
        from fencepost.app.composing import StartCalledOff  # noqa: PLC0415 - it loads the engine

        with self._app.runtime.on_signals(_SIGNALS, self._receive):
            try:
                composed = self._start()
            except StartCalledOff:
                self._app.close()
                messages.report("left: a signal ended it before it could start")
                return Exit.OK
            messages.report(self._start_message())
            self._await_end(composed)
            is_requested = self._stop_requested.is_set()
            messages.report(self._leaving(composed, grace_s))
            composed.stop(grace_s)
            self._app.close()
        messages.report("left")
        return Exit.OK if is_requested or composed.node.was_drained else Exit.FAILED

    def _leaving(self, composed: Composed, grace_s: float) -> str:
        if self._stop_requested.is_set():
            return f"leaving: what runs has {grace_s:g} s to end"
        return "drained: its runs are done" if composed.node.was_drained else "this node has left by itself"

    def _await_end(self, composed: Composed) -> None:
        while not self._stop_requested.wait(_POLL_EVERY_S) and composed.node.is_running:
            pass

    def _receive(self, number: int) -> None:
        """On the first signal, request the stop. On the second, end the process at once."""
        now = self._app.runtime.monotonic()
        if self._stop_requested_at is None:
            self._stop_requested_at = now
            self._stop_requested.set()
        elif now - self._stop_requested_at > _SAME_SIGNAL_S and not self._is_ending:
            self._is_ending = True  # a third signal may arrive during the message
            messages.report("ended at once, by a second signal; other nodes take over what ran when the ttl has passed")
            messages.flush()
            os._exit(Exit.SIGNALLED + number)

    def _start(self) -> Composed:
        from fencepost.app.composing import start_node  # noqa: PLC0415 - it loads the engine
        from fencepost.app.worker_processes import Imported, start_process_node  # noqa: PLC0415

        if self._threads:
            return start_node(self._app, stop_requested=self._stop_requested)
        prepare = PREPARE.get(self._log_format)
        return start_process_node(self._app, Imported(self._spec), prepare=prepare, stop_requested=self._stop_requested)

    def _start_message(self) -> str:
        app = self._app
        slots, url = app.settings.slots or 0, app.ledger.url
        how = "threads" if self._threads else f"{slots} worker process{'' if slots == 1 else 'es'}"
        where = str(url.path) if url.is_file else str(url)  # the full path: a relative one depends on the folder
        return f"{app.node_name} takes part on {where}, with {how}: {', '.join(app.jobs) or 'no jobs'}"


def _loaded(spec: str, options: dict[str, Any]) -> App:
    """Import the application, and override its settings with the options."""
    from fencepost.app import App  # noqa: PLC0415 - it loads the engine
    from fencepost.app.worker_processes import default_workers  # noqa: PLC0415
    from fencepost.config import KINDS  # noqa: PLC0415
    from fencepost.core.urls import absolute_url  # noqa: PLC0415
    from fencepost.engine.loading import load_app  # noqa: PLC0415

    read: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None:
            read[KINDS[name].field] = KINDS[name].read(value)
            os.environ[f"FENCEPOST_{name.upper()}"] = str(value)  # workers load the application themselves
    app = load_app(spec)
    if not isinstance(app, App):
        raise ConfigurationError(f"{spec!r} is a {type(app).__name__}, and a node needs an App")
    if "url" in read and app.settings.url != absolute_url(read["url"]):
        raise ConfigurationError(
            f"--ledger: {spec!r} names its ledger itself, with App(url=…), and its workers would use that one; name it "
            "there, or leave it out there"
        )
    app.settings = replace(app.settings, **read).resolved()
    if app.settings.slots is None:
        app.settings = replace(app.settings, slots=default_workers())
    return app
