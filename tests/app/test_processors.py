"""Default workers follow what the container may use, not what its host has."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost import App
from fencepost.app import composing, processors
from fencepost.app.worker_processes import default_workers

VERSION_1 = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 64),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        (
            {
                "proc/self/cgroup": VERSION_1,  # the host's name of the group, and the container's own folder
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": VERSION_1,
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n",
            },
            64,
        ),
    ],
)
def test_the_quota_of_a_container_counts(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_allowed", lambda: 64)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert processors.processors(tmp_path) == expected


def test_workers_and_slots_follow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_allowed", lambda: 64)
    monkeypatch.setattr(processors, "_ROOT", tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("800000 100000\n")
    app = App(f"sqlite:///{tmp_path}/app.db")
    assert (default_workers(), composing.slots_of(app)) == (16, 16)


def test_a_process_that_may_use_one_processor_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(processors.os, "process_cpu_count", raising=False)
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert processors.processors(tmp_path) == 1
