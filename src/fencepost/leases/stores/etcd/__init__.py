"""Leases in etcd (3.4 and newer), over its JSON gateway.

URL: ``etcd://host:2379,host:2379/prefix``, ``etcds://…`` for TLS. ``user:password@`` logs in with etcd's own
authentication. The path is the prefix of all keys (``/fencepost`` if there is none). Options: ``ca``, ``cert``
and ``key`` (files, only with ``etcds``), ``call_timeout``.

Grade: *consensus*. A grant that was answered is on the disks of a majority of the members.

**Shape.** A session is an etcd lease. Each name has a record ``<prefix>/lease/<name>`` that stays, and while it is held
a key ``<prefix>/holder/<name>`` that hangs on the session's etcd lease, so etcd removes it when the session dies.
Acquiring is one transaction: *holder absent and record unchanged → write both*. Releasing is one transaction:
*holder is this very grant → delete it*. The record as this process last saw it is remembered, so that a free
name costs one round trip.

**Survives**: the loss of any minority of members, a crash and restart of all of them, a record or holder key
deleted by hand, a wiped cluster (tokens follow the clock), a lost reply, a member that hangs (the next call goes
to the next endpoint of the URL).

**Does not survive**: an etcd that revokes a lease too early. Before the fix of etcd issue 15247 a deposed leader that
was stuck could do so; 3.5.0 to 3.5.2 can come back from a crash with inconsistent data (issue 13766), and
`start` warns of these. A cluster restored from an old backup forgets what came later: holders since then are
forgotten with it, tokens still rise.

**Expiry** is decided by etcd's leader, in whole seconds, half a second late or so, and counts anew for all sessions
when the leader changes: a takeover during a failover takes up to one ttl longer, never shorter.
"""

from fencepost.leases.stores.etcd.store import EtcdStore, from_url

__all__ = ["EtcdStore", "from_url"]
