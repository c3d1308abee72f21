"""Leases in ZooKeeper (3.5 and newer), with kazoo.

URL: ``zookeeper://host:2181,host:2181/root``. The path is the node under which everything is kept (``/fencepost`` if
there is none); it is created if it is missing. ``user:password@`` authenticates by digest, and then all nodes
are made with rights for that user alone; without it, everybody has all rights. Option: ``call_timeout``.

Grade: *consensus*. A grant that was answered is in the logs of a majority of the servers.

**Shape.** A session is a ZooKeeper session on a connection of its own. Each name has a record
``<root>/leases/<name>`` that stays (name percent-encoded), and while it is held an ephemeral node ``…/holder``, which
ZooKeeper removes when the session dies. Acquiring is one multi: *session alive and record unchanged → write it
and create the holder*. Releasing is one multi: *record unchanged since the grant → delete the holder*. The record
as this process last saw it is remembered, so that a free name costs one round trip.

A node's version begins anew when it is deleted and created again. So each record has a child ``era-<id>``, made
with it, and every multi checks that this child is still there: what is remembered of a deleted record is never
mistaken for its successor.

**Survives**: the loss of any minority of servers, a crash and restart of all of them, nodes deleted by hand, a wiped
ensemble (tokens follow the leader's clock), a lost reply, a server that hangs.

**Does not survive**: an ensemble restored from an old backup forgets the holders since then; tokens still rise. The
leader's clock set back shortens nobody's lease, but lengthens *at-least* times, and set forward it shortens those.

**Renewals** share the session's connection with its acquisitions: ZooKeeper ties a session to one. kazoo's own
heartbeat is off on that connection, so a session that is not renewed dies, although its process lives.
"""

from fencepost.leases.stores.zookeeper.store import ZooKeeperStore, from_url

__all__ = ["ZooKeeperStore", "from_url"]
