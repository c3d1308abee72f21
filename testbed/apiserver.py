"""Builds ``kube-apiserver`` from Go modules, once, into the cache.

``k8s.io/kubernetes`` is not meant to be required by others: its ``go.mod`` replaces some thirty modules by folders of
its own repository. All of them are published under matching versions (v1.37.1 has v0.37.1), so a main module that holds
nothing but the requirement and these replacements is enough to build the command.

With modules downloaded it takes about 6 minutes on two cores, and 3 GB of Go's own cache.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from testbed import cache, golang
from testbed.server import Missing

VERSION = "v1.37.1"
MODULE = "k8s.io/kubernetes"


def path() -> Path:
    """Where the built program is or will be."""
    return cache.directory() / f"kube-apiserver-{VERSION}"


def program() -> Path:
    if not path().exists():
        raise Missing(golang.not_built(path()))
    return path()


def build() -> Path:
    """Build the program unless it is there; wait if another process is building it."""
    with golang.lock(path()):
        if not path().exists():
            make()
    return path()


def make() -> None:
    """Build the program. The caller has the lock."""
    go = golang.program()
    # In the cache folder, so that the finished program can be moved to its place in one step.
    with tempfile.TemporaryDirectory(prefix="build-", dir=path().parent) as name:
        folder = Path(name)
        (folder / "go.mod").write_text(_main_module(go, folder))
        built = folder / "kube-apiserver"
        stamp = f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}"
        options = ["-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", stamp, "-o", str(built)]
        golang.run([str(go), "build", *options, f"{MODULE}/cmd/kube-apiserver"], folder)
        built.rename(path())


def _main_module(go: Path, folder: Path) -> str:
    """The text of a ``go.mod`` that requires Kubernetes and replaces what Kubernetes replaces."""
    original: dict[str, Any] = json.loads(
        golang.run([str(go), "mod", "download", "-json", f"{MODULE}@{VERSION}"], folder)
    )
    parsed: dict[str, Any] = json.loads(golang.run([str(go), "mod", "edit", "-json", original["GoMod"]], folder))
    replaced = [entry["Old"]["Path"] for entry in parsed["Replace"] if entry["New"]["Path"].startswith("./staging/")]
    version = VERSION.replace("v1.", "v0.", 1)
    lines = ["module testbed", f"go {parsed['Go']}", f"require {MODULE} {VERSION}"]
    lines += [f"replace {name} => {name} {version}" for name in replaced]
    return "\n".join(lines) + "\n"
