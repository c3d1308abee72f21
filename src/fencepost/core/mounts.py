"""Finds the file system of a path in the text of ``/proc/self/mountinfo``. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

# Their file locks are missing, optional or lost on reconnection, and machines cannot share memory through them.
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "ceph", "glusterfs")
) | frozenset(("lustre", "gpfs", "gfs2", "ocfs2", "beegfs", "pvfs2", "orangefs", "davfs", "virtiofs", "vboxsf"))
# FUSE reports its program as "fuse.<program>"; these programs use the network.
_NETWORK_FUSE = re.compile(
    r"fuse\.(sshfs|s3fs|gcsfuse|goofys|rclone|glusterfs|ceph|ceph-fuse|davfs2?|curlftpfs|smbnetfs|juicefs|seaweedfs|"
    r"moosefs|mfs\w*|lizardfs|beegfs|blobfuse2?|mount-s3|vmhgfs-fuse|grpcfuse|osxfs)"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system_of(path: PurePosixPath, mountinfo: str) -> str | None:
    """Return the type of the file system of the absolute `path`: that of the longest mount point above it.

    If several file systems are mounted on one point, the last one counts. None if the text has no matching entry.
    """
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        mount = _mount(line)
        if mount is None or not path.is_relative_to(mount[0]):
            continue
        depth = len(mount[0].parts)
        if best is None or depth >= best[0]:
            best = depth, mount[1]
    return best[1] if best else None


def is_mount_point(path: PurePosixPath, mountinfo: str) -> bool:
    """Whether something is mounted at `path` itself."""
    return any(mount is not None and mount[0] == path for mount in map(_mount, mountinfo.splitlines()))


def is_network(file_system: str | None) -> bool:
    """Whether files on it may be shared with other machines."""
    return file_system is not None and (
        file_system in NETWORK_FILE_SYSTEMS or _NETWORK_FUSE.fullmatch(file_system) is not None
    )


def _mount(line: str) -> tuple[PurePosixPath, str] | None:
    """Parse one line: the mount point is the fifth field, and the type is the first field after a separate dash."""
    before, dash, after = line.partition(" - ")
    fields, kinds = before.split(), after.split()
    if not dash or len(fields) < 5 or not kinds:
        return None
    point = _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), fields[4])
    return PurePosixPath(point), kinds[0]
