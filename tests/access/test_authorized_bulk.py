"""Dead letters and bulk work belong to the bulk job; its parts and replays do because it declares them."""

from functools import partial

import pytest

from fencepost.access import Authentication, Authorized, HostPrincipal
from fencepost.core.rights import Scope
from fencepost.errors import FencepostError, NotAllowed
from fencepost.ledger import jobs
from tests.cli.bulk_shop import BulkShop, empty_files, make_shop, used_files, used_shop

__all__ = ["empty_files", "make_shop", "used_files", "used_shop"]


def within(shop: BulkShop, roles: dict[str, str]) -> Authorized:
    return Authentication(shop.app.operations.within(Scope.direct())).by_host(HostPrincipal("ann", roles))


def outcome(call, *about) -> str:
    try:
        return repr(call(*about))
    except FencepostError as error:
        return f"{type(error).__name__}: {error} {vars(error)}"


def test_letters_and_bulk_work_of_another_job_do_not_exist(used_shop: BulkShop) -> None:
    for roles in ({"settl": "admin"}, {"Settle": "admin"}, {"settle/part": "admin"}, {}):
        ann = within(used_shop, roles)
        assert ann.letters.list() == list(ann.letters.iterate()) == []
        assert outcome(ann.letters.list, "settle").replace("settle", "x") == outcome(ann.letters.list, "x")
        for show in (ann.letters.show, ann.bulk.show, partial(ann.bulk.again, reason="why")):
            assert outcome(show, 1).replace("1", "999999") == outcome(show, 999999)
        for act in (ann.letters.replay, ann.letters.drop):
            text = outcome(lambda job, act=act: act(job, all_new=True, reason="why"), "settle")
            assert text.startswith("NotInLedger: the application has no bulk job 'settle'")


def test_each_act_on_letters_and_bulk_work_needs_its_role(used_shop: BulkShop) -> None:
    shop = used_shop
    assert jobs.parents(shop.app.ledger) == [("settle/part", "settle"), ("settle/replay", "settle")]
    viewer, operator, admin = (within(shop, {"settle": role}) for role in ("viewer", "operator", "admin"))
    assert [each.id for each in viewer.letters.list("settle")] == [3, 2, 1]
    assert viewer.letters.show(1).error == "order 7 is poison"
    assert viewer.bulk.show(1).job == "settle"
    for refused in (
        lambda: viewer.letters.replay("settle", [1], reason="why"),
        lambda: viewer.bulk.again(1, reason="why"),
        lambda: operator.letters.drop("settle", [1], reason="why"),
        lambda: operator.bulk.forget(1, reason="why"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    made = operator.letters.replay("settle", [1], reason="the account is there now")
    run = operator.run(made.run_id)
    assert (run.job, run.requested_by) == ("settle/replay", "host:ann")
    assert admin.letters.drop("settle", [2], reason="old") == 1
    newest = shop.app.operations.audit.entries(limit=2, act="dead letters dropped")[0]
    assert (newest.who, newest.how, newest.reason) == ("host:ann", "host", "old")
