"""Leases in etcd (3.4 and newer), over its JSON gateway.

URL: ``etcd://host:2379,host:2379/prefix``, ``etcds://…`` for TLS. ``user:password@`` logs in with etcd's own
authentication. The path is the prefix of all keys (``/fencepost`` if there is none). Options: ``ca``, ``cert``
and ``key`` (files, only with ``etcds``), ``call_timeout``.

Grade: *consensus*. A confirmed grant is on the disks of a majority of the members.

**Design.** A session is an etcd lease. Each name has a permanent record ``<prefix>/lease/<name>`` and, while it is
held, a key ``<prefix>/holder/<name>`` that is attached to the session's etcd lease, so etcd removes it when the session
dies. Acquiring is one transaction: *holder absent and record unchanged → write both*. Releasing is one transaction:
*holder is this grant → delete it*. The process remembers the record as it last saw it, so acquiring a free name takes
one round trip.

**Survives**: the loss of any minority of members, a crash and restart of all of them, a record or holder key
deleted by hand, a wiped cluster (tokens follow the clock), a lost reply, a member that hangs (the next call goes
to the next endpoint of the URL).

**Does not survive**: an etcd that revokes a lease too early. Before the fix of etcd issue 15247 a deposed leader that
was stuck could do so. Versions 3.5.0 to 3.5.2 can have inconsistent data after a crash (issue 13766); `start` warns of
these. A cluster restored from an old backup has lost everything later, including holders; tokens still increase.

**Expiry** is decided by etcd's leader, in whole seconds, about half a second late. When the leader changes, the ttl of
all sessions starts again: a takeover during a failover takes up to one ttl longer, never shorter.
"""

from fencepost.leases.stores.etcd.store import EtcdStore, from_url

__all__ = ["EtcdStore", "from_url"]
