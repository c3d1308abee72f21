"""Which file system a path lies on, read from the text of ``/proc/self/mountinfo``. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

# Their locks are missing, optional or forgotten on reconnection, and shared memory does not reach across machines.
NETWORK_FILE_SYSTEMS = frozenset(
    ("nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "9p", "afs", "coda", "ceph", "glusterfs")
) | frozenset(("lustre", "gpfs", "gfs2", "ocfs2", "beegfs", "pvfs2", "orangefs", "davfs", "virtiofs", "vboxsf"))
# FUSE shows the program behind it as "fuse.<program>"; these reach over the network.
_NETWORK_FUSE = re.compile(
    r"fuse\.(sshfs|s3fs|gcsfuse|goofys|rclone|glusterfs|ceph|ceph-fuse|davfs2?|curlftpfs|smbnetfs|juicefs|seaweedfs|"
    r"moosefs|mfs\w*|lizardfs|beegfs|blobfuse2?|mount-s3|vmhgfs-fuse|grpcfuse|osxfs)"
)
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system_of(path: PurePosixPath, mountinfo: str) -> str | None:
    """Return the type of the file system that holds the absolute `path`: that of the longest mount point above it.

    Of several mounts on one point the last covers the others. None if the text tells nothing.
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
    """Read one line: the mount point is its fifth field, the type comes first after a lone dash."""
    before, dash, after = line.partition(" - ")
    fields, kinds = before.split(), after.split()
    if not dash or len(fields) < 5 or not kinds:
        return None
    point = _ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), fields[4])
    return PurePosixPath(point), kinds[0]
