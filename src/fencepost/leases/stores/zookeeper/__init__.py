"""Leases in ZooKeeper (3.5 and newer), with kazoo.

URL: ``zookeeper://host:2181,host:2181/root``. The path is the node under which everything is stored (``/fencepost`` by
default); it is created if it is missing. ``user:password@`` authenticates by digest, and then only that user has access
to the nodes; without it, everyone has full access. Option: ``call_timeout``.

Grade: *consensus*. A confirmed grant is in the logs of a majority of the servers.

**Design.** A session is a ZooKeeper session on its own connection. Each name has a permanent record
``<root>/leases/<name>`` (name percent-encoded) and, while it is held, an ephemeral node ``…/holder``, which ZooKeeper
removes when the session dies. Acquiring is one multi: *session alive and record unchanged → write it and create the
holder*. Releasing is one multi: *record unchanged since the grant → delete the holder*. The process remembers the
record as it last saw it, so acquiring a free name takes one round trip.

A node's version starts again when it is deleted and created. So each record has a child ``era-<id>``, created with it,
and every multi checks that this child exists: a remembered record that was deleted is never mistaken for a new one.

**Survives**: the loss of any minority of servers, a crash and restart of all of them, nodes deleted by hand, a wiped
ensemble (tokens follow the leader's clock), a lost reply, a server that hangs.

**Does not survive**: an ensemble restored from an old backup has lost the holders since then; tokens still increase. If
the leader's clock is set back, no lease becomes shorter, but *at-least* times become longer; set forward, shorter.

**Renewals** share the connection with the session's acquisitions, because a ZooKeeper session has only one. kazoo's own
heartbeat is off on that connection, so a session that is not renewed dies, even if its process is alive.
"""

from fencepost.leases.stores.zookeeper.store import ZooKeeperStore, from_url

__all__ = ["ZooKeeperStore", "from_url"]
