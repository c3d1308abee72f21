"""The course of chaos: prepare, start, inject faults, wait for recovery, stop, check, remove.

**Promises.** It ends within its minutes and about two more. Whatever happens, processes are ended and the namespace is
removed, also when it is interrupted; a first Ctrl-C ends the faults and checks what there is, a second one ends it all.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, create_engine

from fencepost.core.runtime import Runtime
from fencepost.core.timings import Timings
from fencepost.errors import ConfigurationError, FencepostError, LedgerUnavailable
from fencepost.leases.schemes import store_from_url
from fencepost.ledger.ledger import Ledger, open_ledger
from fencepost.ledger.migrations import migrate
from fencepost.proof.chaos.cast import WORKERS, Cast, ProcessSettings
from fencepost.proof.chaos.chance import Chance
from fencepost.proof.chaos.director import Director
from fencepost.proof.chaos.effects import ChaosTables
from fencepost.proof.chaos.faults import HarmableServer
from fencepost.proof.chaos.gathering import POLL_S, SETTLE_S, CalmTimes, gather, is_settled
from fencepost.proof.chaos.lines import recorder_in
from fencepost.proof.chaos.namespace import Namespace
from fencepost.proof.chaos.outcome import ChaosOutcome, Participants, outcome_of
from fencepost.proof.chaos.processes import refuse_without_proc
from fencepost.proof.chaos.proxy import Network, Proxy
from fencepost.proof.chaos.wiring import ServerLine, server_of

LEDGER, STORE = "ledger", "store"
LEAST = 2  # one is always spared, to take over; another one has faults
SMALLEST_TTL_S = 1.0  # starting a process takes time, and faults last for parts of a ttl
_STEP_S = 0.05  # how late a fault begins or ends: half of the shortest pause with the smallest ttl
_START_WITHIN_S = 90.0  # for all processes together, on a machine that may be busy; then chaos gives up
_CALM_WITHIN_S = 60.0  # for actors that are down to come back; the checkers report what does not end without them
_LEAVE_WITHIN_S = 8.0  # the grace of nodes is 3 s; what has not left by then is killed


@dataclass(frozen=True, slots=True)
class ChaosStage:
    """What an act may use. `ledger_url` leads to the ledger without a proxy that is harmed."""

    cast: Cast
    director: Director
    ledger_url: str
    say: Callable[[str], None]


class Act(NamedTuple):
    """An act at a fixed share of the time, independent of the faults: a deploy, a migration."""

    at: float
    do: Callable[[ChaosStage], None]


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options. `servers` may be killed, because the caller has started them for this purpose."""

    nodes: int = 3
    contenders: int = 4
    workers: int = WORKERS
    seconds: float = 300.0
    ttl_s: float = 3.0
    seed: int = 1
    gap_s: float = 1.0
    servers: Sequence[HarmableServer] = ()
    keep: Path | None = None  # where histories and logs are kept, if at all
    pythons: Mapping[str, str] = field(default_factory=dict)  # by name: who is of another version
    absent: Collection[str] = ()  # actors that start later
    acts: Sequence[Act] = ()
    make_tables: Callable[[str], None] | None = None  # of the ledger at a URL, if not by the version of today


@dataclass(slots=True)
class Course:
    """One run of chaos in a namespace."""

    space: Namespace
    options: ChaosOptions
    runtime: Runtime
    say: Callable[[str], None]
    _lines: dict[str, ServerLine] = field(default_factory=dict)
    _are_tokens_durable: bool = True

    def run(self) -> ChaosOutcome:
        """Do all of it."""
        self._refuse()
        self.space.reach(self.runtime)  # by their own names, not by those of proxies
        with _folder(self.options.keep) as folder:
            network = Network(self.runtime)
            try:
                return self._on(network, folder)
            finally:
                network.close()

    def _refuse(self) -> None:
        refuse_without_proc()
        Timings.of(self.options.ttl_s)
        if min(self.options.nodes, self.options.contenders) < LEAST:
            raise ConfigurationError("chaos needs two of everybody at least: one is always left alone, to take over")
        if self.options.ttl_s < SMALLEST_TTL_S:
            raise ConfigurationError(
                f"chaos needs a ttl of at least {SMALLEST_TTL_S:g} s: starting a process takes time"
            )

    def _on(self, network: Network, folder: Path) -> ChaosOutcome:
        self.say(f"whatever chaos makes begins with {self.space.prefix}, and is removed at the end")
        self._lines = {LEDGER: self._line(self.space.ledger_url, network)}
        if self.space.store_url is not None:
            self._lines[STORE] = self._line(self.space.store_url, network)
        own = {name: line.connect()[0] for name, line in self._lines.items()}
        within = Namespace(self.space.prefix, own[LEDGER], own.get(STORE))
        ledger = open_ledger(own[LEDGER], self.runtime)
        engine = create_engine(ledger.url.sqlalchemy(), pool_pre_ping=True)
        try:
            self._prepare(ledger, engine)
            return self._play(ledger, engine, folder)
        finally:
            engine.dispose()
            ledger.close()
            self._remove(within)

    def _line(self, url: str, network: Network) -> ServerLine:
        server = server_of(url)
        if server is None:
            self.say(f"no proxy can stand before {url.partition('://')[0]}://…, so its network stays as it is")
        return ServerLine(url, server, network)

    def _prepare(self, ledger: Ledger, engine: Engine) -> None:
        store = store_from_url(self.space.locks_url, self.runtime)
        try:
            self._are_tokens_durable = store.capabilities.durable_token
            store.start()  # it refuses where locks would not hold
        finally:
            store.shutdown()
        if self.options.make_tables is None:
            migrate(ledger)
        else:
            self.options.make_tables(ledger.url.text)
        ChaosTables(ledger.url).make(engine)

    def _play(self, ledger: Ledger, engine: Engine, folder: Path) -> ChaosOutcome:
        options, runtime = self.options, self.runtime
        patience_s = options.seconds + _START_WITHIN_S + _CALM_WITHIN_S + SETTLE_S + 2 * _LEAVE_WITHIN_S
        cast = Cast(runtime, ProcessSettings(folder, options.ttl_s, runtime.monotonic() + patience_s))
        try:
            self._engage(cast)
            self._await_start(cast)
            wall_us_at_0 = _wall_us_at_0(ledger, runtime)
            director = self._director(cast, folder)
            self._harm(director, ChaosStage(cast, director, ledger.url.text, self.say))
            quiet_from = self._calm(director)
            ended_at = self._settle(director, ledger, quiet_from, wall_us_at_0)
        finally:
            cast.end(_LEAVE_WITHIN_S)
        was_away = any(fault.hits_everybody for fault in director.faults)
        evidence = gather(
            ledger,
            engine,
            folder / "history",
            ttl_s=options.ttl_s,
            ending=CalmTimes(quiet_from, ended_at, wall_us_at_0, was_away),
            tokens_are_durable=self._are_tokens_durable,
        )
        around = Participants(tuple(cast.actors), tuple(director.fallen), is_one_file=ledger.url.is_file)
        return outcome_of(evidence, director.faults, seed=options.seed, around=around)

    def _engage(self, cast: Cast) -> None:
        for number in range(1, self.options.nodes + 1):
            urls, proxies = self._ways()
            name, has_threads = f"node-{number}", number == self.options.nodes
            cast.add_node(
                name,
                ledger=urls[LEDGER],
                leases=urls.get(STORE),
                proxies=proxies,
                workers=0 if has_threads else self.options.workers,  # threads cannot be killed: fences have more to do
                python=self.options.pythons.get(name, sys.executable),
            )
        for number in range(1, self.options.contenders + 1):
            urls, proxies = self._ways()
            locks = urls.get(STORE) or Namespace(self.space.prefix, urls[LEDGER], None).locks_url
            name = f"contender-{number}"
            python = self.options.pythons.get(name, sys.executable)
            cast.add_contender(name, ledger=urls[LEDGER], locks=locks, proxies=proxies, python=python)
        for name in self.options.absent:
            cast.actors[name].is_out = True

    def _ways(self) -> tuple[dict[str, str], Mapping[str, Proxy]]:
        ways = {name: line.connect() for name, line in self._lines.items()}
        urls = {name: url for name, (url, _) in ways.items()}
        return urls, {name: proxy for name, (_, proxy) in ways.items() if proxy is not None}

    def _await_start(self, cast: Cast) -> None:
        wanted = [actor for actor in cast.actors.values() if not actor.is_out]
        for actor in wanted:
            cast.start(actor)
        give_up_at = self.runtime.monotonic() + _START_WITHIN_S
        while coming := [actor for actor in wanted if not actor.is_up]:
            fallen = [actor for actor in coming if not actor.is_alive]
            if fallen or self.runtime.monotonic() > give_up_at:
                who = (fallen or coming)[0]
                raise FencepostError(f"{who.name} did not come to take part; it said last: {who.last_words()}")
            self.runtime.sleep(_STEP_S)
        nodes = sum(actor.is_node for actor in wanted)
        self.say(f"{nodes} nodes and {len(wanted) - nodes} contenders take part")

    def _director(self, cast: Cast, folder: Path) -> Director:
        return Director(
            cast=cast,
            lines=self._lines,
            servers=self.options.servers,
            runtime=self.runtime,
            recorder=recorder_in(folder / "history", "director", self.runtime),
            chance=Chance(self.options.seed),
            ttl_s=self.options.ttl_s,
            gap_s=self.options.gap_s,
            say=self.say,
        )

    def _harm(self, director: Director, stage: ChaosStage) -> None:
        began_at, seconds = self.runtime.monotonic(), self.options.seconds
        acts = sorted(self.options.acts, key=lambda act: act.at)
        try:
            while (now := self.runtime.monotonic()) < began_at + seconds or acts:  # all of them, also if one takes long
                if acts and now >= began_at + acts[0].at * seconds:
                    acts.pop(0).do(stage)
                director.step()
                self.runtime.sleep(_STEP_S)
        except KeyboardInterrupt:
            self.say("no more faults; what happened is checked. Again Ctrl-C: end now")

    def _calm(self, director: Director) -> float:
        give_up_at = self.runtime.monotonic() + _CALM_WITHIN_S
        director.step(is_calm=True)
        while not director.is_well and self.runtime.monotonic() < give_up_at:
            self.runtime.sleep(_STEP_S)
            director.step(is_calm=True)
        return (
            self.runtime.monotonic()
        )  # an actor that is not up by now will not be; the checkers then report what did not end

    def _settle(self, director: Director, ledger: Ledger, quiet_from: float, wall_us_at_0: int) -> float:
        self.say("no more faults; waiting for all that was due until now")
        until_us = wall_us_at_0 + round(quiet_from * 1_000_000)
        # A second more than a start may take after an outage (`bound_s`): what is late can be seen.
        at_least = quiet_from + 2 * self.options.ttl_s + POLL_S + 3.0
        # A second more: the checkers expect that all has ended only if SETTLE_S have passed.
        while (now := self.runtime.monotonic()) < quiet_from + SETTLE_S + 1.0:
            director.step(is_calm=True)
            if now >= at_least and _is_settled(ledger, until_us):
                break
            self.runtime.sleep(0.3)
        return self.runtime.monotonic()

    def _remove(self, within: Namespace) -> None:
        try:
            within.remove(self.runtime)
        except (FencepostError, OSError) as error:
            self.say(f"what chaos made could not be removed: {error}; remove it with --remove {within.prefix}")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix="chaos-", dir=keep))
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-chaos-") as folder:
        yield Path(folder)


def _wall_us_at_0(ledger: Ledger, runtime: Runtime) -> int:
    """Return the ledger's time at zero of our clock, from the quickest of several answers."""
    tries = []
    for _ in range(5):
        before = runtime.monotonic()
        now_us = ledger.now_us()
        after = runtime.monotonic()
        tries.append((after - before, now_us - round((before + after) / 2 * 1_000_000)))
    return min(tries)[1]


def _is_settled(ledger: Ledger, until_us: int) -> bool:
    try:
        return is_settled(ledger, until_us)
    except LedgerUnavailable:
        return False
