"""While pages are open, logins are not read again as long as no right has changed, and are when one has."""

import pytest

from fencepost.access import Access, Authentication
from fencepost.core.rights import Scope
from fencepost.errors import NotAuthenticated
from fencepost.ledger import logins


def test_login_is_read_again_when_a_right_has_changed_and_not_before(app, monkeypatch):
    monkeypatch.setattr("fencepost.access.identity.TRUSTED_S", 5.0)
    now = [100.0]
    monkeypatch.setattr(app.ledger.runtime, "monotonic", lambda: now[0])
    access, known, read = Access(app.ledger, Scope.direct("root")), Authentication(app.operations), []
    access.put_account("ann", None)
    access.give("user:ann", "viewer")

    def add(cursor):
        whose = {"how": "login", "address": None, "lasts_s": 900}
        logins.add_login(app.ledger, cursor, "s" * 64, "user:ann", **whose)

    app.ledger.write(add)
    live = logins.live_login
    monkeypatch.setattr(logins, "live_login", lambda *given, **named: (read.append(1), live(*given, **named))[1])
    known.changes()
    now[0] += 1
    person = known.by_login("s" * 64)
    for _ in range(4):  # each look for changes confirms what was read
        now[0] += 4
        known.changes()
        now[0] += 4
        person.check()
    assert len(read) == 1
    access.end_logins("user:ann")
    known.changes()
    with pytest.raises(NotAuthenticated):
        person.check()
