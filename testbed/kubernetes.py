"""A Kubernetes API server on an etcd of its own, without nodes or controllers; built by ``testbed.apiserver``.

Ready in about 3 s, 260 MB; a restart takes 2 s. RBAC is on. There are two users: ``admin``, who may do everything, and
``powerless``, who may do nothing (403). A request without a valid token is answered 401. ``kill``, ``stop`` and
``restart`` are about the API server alone; its etcd goes on, reachable as ``etcd``, until ``close``.
"""

import json
import ssl
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any, ClassVar

from testbed import apiserver, certificates
from testbed.etcd import Etcd
from testbed.server import Server


class Kubernetes(Server):
    name: ClassVar[str] = "kubernetes"
    start_deadline_s: ClassVar[float] = 90.0
    admin: ClassVar[str] = "admin"
    token: ClassVar[str] = "token-of-admin"
    powerless_token: ClassVar[str] = "token-of-powerless"

    def __init__(self) -> None:
        self.program = apiserver.program()
        self.etcd = Etcd()
        super().__init__()
        files = certificates.issue(self.directory, "kubernetes.default.svc")
        self.ca_file, self.cert_file, self.key_file = files.ca_file, files.cert_file, files.key_file
        self.kubeconfig = self.write_kubeconfig(self.directory / "kubeconfig", token=self.token)
        self.powerless_kubeconfig = self.write_kubeconfig(
            self.directory / "powerless-kubeconfig", token=self.powerless_token
        )

    @property
    def url(self) -> str:
        return f"kubernetes://default?kubeconfig={self.kubeconfig}"

    @property
    def powerless_url(self) -> str:
        """The same server, for a user whom it forbids everything."""
        return f"kubernetes://default?kubeconfig={self.powerless_kubeconfig}"

    def prepare(self) -> None:
        users = f"{self.token},{self.admin},1,system:masters\n{self.powerless_token},powerless,2\n"
        (self.directory / "tokens.csv").write_text(users)

    def launch(self) -> None:
        if not self.etcd.is_running:
            self.etcd.start()
        super().launch()

    def close(self) -> None:
        super().close()
        self.etcd.close()

    def command(self) -> list[str]:
        options = {
            "etcd-servers": self.etcd.endpoint,
            "bind-address": self.host,
            "secure-port": self.port,
            "tls-cert-file": self.cert_file,
            "tls-private-key-file": self.key_file,
            "service-account-key-file": self.key_file,
            "service-account-signing-key-file": self.key_file,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.0.0.0/24",
            "token-auth-file": self.directory / "tokens.csv",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount",
            "endpoint-reconciler-type": "none",
        }
        return [str(self.program), *(f"--{name}={value}" for name, value in options.items())]

    def answers(self) -> bool:
        self.get("/readyz")
        self.get("/api/v1/namespaces/default")
        return True

    def get(self, path: str, *, token: str | None = None) -> bytes:
        """The body of the answer to a GET, by default the admin's; raises on any status that is not a success."""
        return self.ask("GET", path, token=token)

    def ask(self, method: str, path: str, *, token: str | None = None) -> bytes:
        """The same for any method without a body."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        request = urllib.request.Request(f"https://{self.address}{path}", headers=headers, method=method)
        context = ssl.create_default_context(cafile=self.ca_file)
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            body: bytes = answer.read()
        return body

    def write_kubeconfig(self, path: Path, *, token: str) -> Path:
        """A kubeconfig that needs no other file; in JSON, which is YAML as well."""
        cluster = {
            "server": f"https://{self.address}",
            "certificate-authority-data": b64encode(self.ca_file.read_bytes()).decode(),
        }
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [
                {"name": "testbed", "context": {"cluster": "testbed", "user": "user", "namespace": "default"}}
            ],
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
        }
        path.write_text(json.dumps(config, indent=2))
        return path

    def in_cluster(self, directory: Path, *, token: str | None = None, namespace: str = "default") -> dict[str, str]:
        """Write the files a pod would find in its service account folder; return the variables it would find set."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "token").write_text(token or self.token)
        (directory / "ca.crt").write_bytes(self.ca_file.read_bytes())
        (directory / "namespace").write_text(namespace)
        return {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": str(self.port)}
