"""A thin client of etcd's JSON gateway: several endpoints, credentials, errors.

It has two lanes with separate connections, *calls* and *renewals*, so that nothing delays a renewal. A lane uses the
member that replied last, and changes to the next one when it does not reply. A call goes on to the next member if one
cannot be reached or knows no leader; a member that does not reply uses up the call's time.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fencepost.core.runtime import Runtime
from fencepost.errors import InvalidUrl, StoreUnavailable
from fencepost.leases.stores.etcd.clock import EtcdClock
from fencepost.leases.stores.etcd.connection import Endpoint, NotAnswered, NotConnected, NotTrusted, Question, Reply
from fencepost.leases.urls import StoreUrl

DEFAULT_PORT = 2379
_UNAVAILABLE = 503
_OK = 200
_TOKEN_TROUBLE = ("invalid auth token", "revision of auth store is old", "user name is empty")


_WHAT: dict[type, str] = {NotConnected: "cannot be reached", NotTrusted: "TLS failed"}


class EtcdRefused(Exception):
    """etcd replied with an error. `code` is gRPC's: 5 means *not found*."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class TlsTrouble(StoreUnavailable):
    """Encryption could not be agreed on, or a certificate was not accepted."""


@dataclass(frozen=True, slots=True)
class EtcdAnswer:
    """A reply of etcd, its store time, and whether etcd may have received the request twice."""

    body: dict[str, Any]
    time_us: int = 0
    repeated: bool = False

    @property
    def revision(self) -> int:
        """The cluster's revision; for a transaction that wrote, its own revision."""
        return int(self.body["header"].get("revision", 0))


class Client:
    """Calls to a cluster."""

    def __init__(self, url: StoreUrl, runtime: Runtime) -> None:
        self._runtime = runtime
        self._user = url.user
        self._password = url.password or ""
        self._headers: dict[str, str] = {"Content-Type": "application/json"}
        places = [(host, port or DEFAULT_PORT) for host, port in url.hosts] or [("127.0.0.1", DEFAULT_PORT)]
        tls = _tls_context(url)
        self.clock = EtcdClock(runtime)
        self.calls = Lane([Endpoint(host, port, tls, runtime) for host, port in places], runtime)
        self.renewals = Lane([Endpoint(host, port, tls, runtime) for host, port in places], runtime)

    def call(self, method: str, body: dict[str, Any], deadline: float, lane: Lane | None = None) -> EtcdAnswer:
        """Call a method of the gateway. Raises `EtcdRefused`, or `StoreUnavailable` if the outcome is unknown."""
        payload = json.dumps(body).encode()
        lane = lane or self.calls
        try:
            return self._answer(lane.ask(Question(f"/v3/{method}", payload, self._headers, deadline)))
        except EtcdRefused as refusal:
            if self._user is None or not str(refusal).endswith(_TOKEN_TROUBLE):
                raise
        self.log_in(deadline, lane)
        return self._answer(lane.ask(Question(f"/v3/{method}", payload, self._headers, deadline)))

    def log_in(self, deadline: float, lane: Lane | None = None) -> None:
        """Get a token for the user of the URL. Tokens expire; `call` then gets another."""
        login = json.dumps({"name": self._user, "password": self._password}).encode()
        headers = {"Content-Type": "application/json"}
        reply = (lane or self.calls).ask(Question("/v3/auth/authenticate", login, headers, deadline))
        self._headers = {**headers, "Authorization": _parsed(reply)["token"]}

    def version(self, deadline: float) -> str:
        """Return the version of a member, such as ``3.5.21``; an empty text if it is not an etcd."""
        reply = self.calls.ask(Question("/version", None, {}, deadline))
        try:
            return str(json.loads(reply.body)["etcdserver"])
        except (ValueError, KeyError, TypeError):
            return ""

    def stream(self, method: str, body: dict[str, Any], deadline: float) -> Iterator[dict[str, Any]]:
        """Yield the messages of a streaming method until the deadline."""
        rest = b""
        payload = json.dumps(body).encode()
        for piece in self.calls.stream(Question(f"/v3/{method}", payload, self._headers, deadline)):
            *lines, rest = (rest + piece).split(b"\n")
            try:
                yield from [json.loads(line) for line in lines if line]
            except ValueError as error:
                raise StoreUnavailable("etcd's reply is not JSON: is it from a proxy?") from error

    def close(self) -> None:
        """Close all connections."""
        self.calls.close()
        self.renewals.close()

    def forget(self) -> None:
        """Drop all connections without closing them."""
        self.calls.forget()
        self.renewals.forget()

    def _answer(self, reply: Reply) -> EtcdAnswer:
        body = _parsed(reply)
        header = body.get("header") or body.get("result", {}).get("header", {})
        return EtcdAnswer(body, self.clock.read(reply.date, int(header.get("revision", 0))), reply.repeated)


class Lane:
    """Connections for one purpose, to one member at a time."""

    def __init__(self, members: Sequence[Endpoint], runtime: Runtime) -> None:
        self._members = members
        self._runtime = runtime
        self._current = 0

    @property
    def addresses(self) -> str:
        """All endpoints, for messages."""
        return ", ".join(member.address for member in self._members)

    def ask(self, question: Question) -> Reply:
        """Ask the current member, or the next one that can be reached."""
        trouble: Exception | None = None
        for untried in range(len(self._members), 0, -1):
            index = self._current
            connect_s = (question.deadline - self._runtime.monotonic()) / untried
            try:
                reply = self._members[index].ask(question, connect_s)
            except (NotConnected, NotTrusted) as error:
                trouble = error
            except NotAnswered as error:
                self._leave(index)
                raise self._unavailable(error) from error
            else:
                if reply.status != _UNAVAILABLE:
                    return replace(reply, repeated=True) if isinstance(trouble, NotAnswered) else reply
                trouble = NotAnswered(_error_text(reply))
            self._leave(index)
        raise self._unavailable(trouble) from trouble

    def stream(self, question: Question) -> Iterator[bytes]:
        """Stream from the current member."""
        index = self._current
        connect_s = question.deadline - self._runtime.monotonic()
        try:
            yield from self._members[index].stream(question, connect_s)
        except (NotConnected, NotAnswered, NotTrusted) as error:
            self._leave(index)
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close the idle connections."""
        for member in self._members:
            member.close()

    def forget(self) -> None:
        """Drop the idle connections."""
        for member in self._members:
            member.forget()

    def _leave(self, index: int) -> None:
        if self._current == index:
            self._current = (index + 1) % len(self._members)

    def _unavailable(self, trouble: Exception | None) -> StoreUnavailable:
        kind = TlsTrouble if isinstance(trouble, NotTrusted) else StoreUnavailable
        what = _WHAT.get(type(trouble), "did not answer")
        return kind(f"etcd at {self.addresses}: {what}: {trouble}")


def _parsed(reply: Reply) -> dict[str, Any]:
    try:
        body = json.loads(reply.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise StoreUnavailable(f"etcd's reply is not JSON (HTTP status {reply.status}): is it from a proxy?")
    if reply.status != _OK:
        raise EtcdRefused(int(body.get("code", 0)), str(body.get("message") or body.get("error")))
    return body


def _error_text(reply: Reply) -> str:
    try:
        return str(_parsed(reply))
    except (EtcdRefused, StoreUnavailable) as error:
        return str(error)


def _tls_context(url: StoreUrl) -> ssl.SSLContext | None:
    files = {name: url.options[name] for name in ("ca", "cert", "key") if name in url.options}
    if url.scheme != "etcds":
        if files:
            raise InvalidUrl(f"the option {next(iter(files))!r} needs etcds://")
        return None
    if ("cert" in files) != ("key" in files):
        raise InvalidUrl("the options 'cert' and 'key' go together")
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
        if "cert" in files:
            context.load_cert_chain(files["cert"], files["key"])
    except OSError as error:
        raise InvalidUrl(f"the files for TLS ({', '.join(files.values())}) cannot be used: {error}") from None
    return context
