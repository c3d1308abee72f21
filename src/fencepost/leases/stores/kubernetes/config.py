"""The address of the API server, the credentials, and the namespace.

In a pod they come from the files of its service account, elsewhere from a kubeconfig. lightkube reads the files and
authenticates (token, token file, exec plugin, password, client certificate).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from lightkube.config import client_adapter
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from fencepost.errors import StoreRefused

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = Path("~/.kube/config")


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """One API server, ready to be called."""

    host: str
    port: int
    base_path: str
    namespace: str
    tls: ssl.SSLContext | None
    credentials: Credentials


def find_api(*, namespace: str | None, kubeconfig: str | None, context: str | None) -> ApiAddress:
    """Read the configuration. `StoreRefused` says what is wrong with it, without showing its contents."""
    config = _select(kubeconfig, context)
    server = urlsplit(config.cluster.server)
    if not server.hostname or server.scheme not in ("http", "https"):
        raise StoreRefused(f"the API server's address {config.cluster.server!r} is not an http or https URL")
    is_tls = server.scheme == "https"
    return ApiAddress(
        host=server.hostname,
        port=server.port or (443 if is_tls else 80),
        base_path=server.path.rstrip("/"),
        namespace=namespace or config.namespace.strip(),
        tls=_checked("certificates", lambda: _tls(config)) if is_tls else None,
        credentials=Credentials(_checked("user", lambda: client_adapter.user_auth(config.user or User()))),
    )


def _select(kubeconfig: str | None, context: str | None) -> SingleConfig:
    if kubeconfig is None and context is None and _is_in_a_pod():
        pod = _checked("service account", lambda: KubeConfig.from_service_account(SERVICE_ACCOUNT).get())
        return cast("SingleConfig", pod)
    path = Path(kubeconfig).expanduser() if kubeconfig else _default_kubeconfig()
    config = _checked(f"kubeconfig {path}", lambda: KubeConfig.from_file(path), mend="; name another: ?kubeconfig=PATH")
    wanted = context or config.current_context
    if wanted not in config.contexts:
        there_are = ", ".join(sorted(config.contexts)) or "none"
        which = f"context {wanted!r}" if wanted else "current-context"
        raise StoreRefused(f"kubeconfig {path} has no {which}; its contexts: {there_are}; choose with ?context=NAME")
    return cast("SingleConfig", _checked(f"context {wanted!r} of kubeconfig {path}", lambda: config.get(wanted)))


def _is_in_a_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists()


def _default_kubeconfig() -> Path:
    """Return the first existing file of $KUBECONFIG, else the user's own. Several files are not merged."""
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    for path in named or [DEFAULT_KUBECONFIG]:
        if path.expanduser().is_file():
            return path.expanduser()
    looked = ", ".join(str(path) for path in named) or str(DEFAULT_KUBECONFIG)
    raise StoreRefused(
        f"no Kubernetes configuration: this is not a pod with a service account, nor is there a kubeconfig ({looked}); "
        "name one with ?kubeconfig=PATH"
    )


def _checked(what: str, read: Callable[[], Any], *, mend: str = "") -> Any:
    """Convert any error of reading to one sentence, without file contents, which may be secrets."""
    try:
        return read()
    except ConfigError as error:
        raise StoreRefused(f"the {what} cannot be used: {error}{mend}") from None
    except OSError as error:
        raise StoreRefused(f"the {what} cannot be read: {error.strerror or type(error).__name__}{mend}") from None
    except Exception as error:  # noqa: BLE001 - the parsers of YAML, base64 and structures raise different errors
        raise StoreRefused(f"the {what} cannot be understood ({type(error).__name__}){mend}") from None


def _tls(config: SingleConfig) -> ssl.SSLContext:
    return client_adapter.verify_cluster(config.cluster, config.user or User(), config.abs_file)


@dataclass(slots=True)
class _Unsent:
    """The part of a request that lightkube's authentication uses."""

    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Refused:
    status_code: int = 401


class Credentials:
    """The Authorization header, kept until the server refuses it, and then created again once (tokens rotate)."""

    def __init__(self, auth: Any) -> None:
        self._auth = auth
        self._header: str | None = None

    @property
    def may_block(self) -> bool:
        """Whether creating the header runs another program."""
        return isinstance(self._auth, client_adapter.ExecAuth)

    @property
    def header(self) -> str | None:
        """The header in use, or None before `make`."""
        return self._header

    def make(self, *, refused: str | None = None) -> str:
        """Return a header, different from `refused` if possible. Empty: no authentication."""
        if self._header is None or self._header == refused:
            self._header = _checked("credentials", lambda: self._run(is_refused=refused is not None)).strip()
        return self._header

    def _run(self, *, is_refused: bool) -> str:
        if self._auth is None:
            return ""
        request = _Unsent()
        flow = self._auth.sync_auth_flow(request)
        next(flow)
        if is_refused:
            next_try = _Refused()
            try:
                flow.send(next_try)
            except StopIteration:
                return self._header or ""
        return request.headers["Authorization"]
