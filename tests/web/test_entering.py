"""Getting in: passwords, one-time links, proxies, host applications; what is forged, expired, replayed or revoked."""

import pytest
from sqlalchemy import update

from fencepost.access import HostPrincipal
from fencepost.errors import InvalidSetting
from fencepost.ledger import logins
from fencepost.threaded import ThreadedRuntime
from fencepost.web import ProxyHeader, web
from fencepost.web.links import LINK_LASTS_S, OneTimeLink
from fencepost.web.visits import local_target
from tests.web.asking import Browser
from tests.web.conftest import PASSWORD

SECRET = "only the proxy knows this"


@pytest.fixture
def ann(access):
    access.put_account("ann", PASSWORD)
    access.give("user:ann", "operator", jobs=["settle"])


def logged_in(app, **how):
    browser = Browser(web(app), **how)
    answer = browser.post(
        "/login", {"name": "ann", "password": PASSWORD, "next": f"{browser.root_path}/runs?q=job:settle"}
    )
    assert answer.status == 303, answer.text
    return browser, answer


def test_login_leads_to_where_one_wanted_to_go_and_logout_ends_it(app, ann):
    browser = Browser(web(app))
    assert browser.get("/runs?q=job:settle").header("location") == "/login?next=%2Fruns%3Fq%3Djob%3Asettle"
    browser, answer = logged_in(app)
    assert answer.header("location") == "/runs?q=job:settle"
    page = browser.get("/runs?q=job:settle")
    assert page.status == 200
    assert "user:ann" in page.text
    kept = browser.cookie
    assert browser.post("/logout").header("location") == "/login"
    browser.cookie = kept
    assert browser.get("/runs").status == 303  # replayed


def test_page_that_is_open_and_not_touched_does_not_keep_a_login_alive(app, ann):
    browser, _ = logged_in(app)
    table, hour_ago = app.ledger.tables.operating["login"], app.ledger.now_us() - 3_600_000_000
    app.ledger.write(lambda cursor: app.ledger.change(cursor, update(table).values(seen_at=hour_ago)))
    assert browser.get("/runs", ("Fencepost-Fragment", "1")).status == 200
    assert browser.get("/jobs", ("Accept", "text/event-stream")).status == 200
    assert logins.logins(app.ledger)[0].seen_at == hour_ago
    assert browser.get("/runs").status == 200  # at once after it: a click is use
    assert logins.logins(app.ledger)[0].seen_at > hour_ago


def test_cookie_is_for_this_server_alone(app, ann):
    _, answer = logged_in(app)
    cookie = answer.header("set-cookie")
    assert cookie.startswith("fencepost-login=")
    assert all(each in cookie for each in ("HttpOnly", "SameSite=strict", "Path=/"))
    assert "Secure" not in cookie
    _, answer = logged_in(app, scheme="https")
    assert answer.header("set-cookie").startswith("__Host-fencepost-login=")
    assert "Secure" in answer.header("set-cookie")
    _, answer = logged_in(app, scheme="https", root_path="/a/b")
    assert answer.header("set-cookie").startswith("__Secure-fencepost-login-")
    assert "Path=/a/b" in answer.header("set-cookie")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_cookies_of_several_prefixes_are_not_taken_for_each_other(app, ann, scheme):
    cookies = {path: logged_in(app, scheme=scheme, root_path=path)[0].cookie for path in ("", "/a", "/a/b")}
    sent = ("Cookie", "; ".join(cookies.values()))  # as a browser sends them to the longest path
    for path in cookies:
        assert Browser(web(app), scheme=scheme, root_path=path).get("/runs", sent).status == 200, path


@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("bob", PASSWORD), ("", ""), ("ann' OR 1=1 --", "x")])
def test_wrong_password_is_401_with_one_sentence_for_all(app, ann, name, password):
    answer = Browser(web(app)).post("/login", {"name": name, "password": password})
    assert answer.status == 401
    assert "The name or the password is wrong." in answer.text
    assert not answer.header("set-cookie")


def test_many_wrong_passwords_are_429_and_on_record(app, ann):
    browser = Browser(web(app))
    statuses = [browser.post("/login", {"name": "ann", "password": "wrong"}).status for _ in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    assert browser.post("/login", {"name": "ann", "password": PASSWORD}).status == 429
    assert any(each.outcome == "refused" for each in app.operations.audit.entries(who="user:ann"))


@pytest.mark.parametrize("cookie", ["x", "", "0" * 64, "fencepost-login", "a" * 600])
def test_forged_cookie_is_nobody(app, cookie):
    browser = Browser(web(app))
    assert browser.get("/runs", ("Cookie", f"fencepost-login={cookie}")).status == 303
    assert browser.get("/runs", ("Cookie", f"fencepost-login={cookie}; fencepost-login=y")).status == 303


def test_login_that_an_admin_has_ended_is_refused(app, access, ann):
    browser, _ = logged_in(app)
    assert browser.get("/runs").status == 200
    access.end_logins("user:ann")
    assert Browser(web(app)).get("/runs", ("Cookie", browser.cookie)).status == 303


def test_link_from_another_site_reloads_itself_so_that_the_cookie_comes_along(app, ann):
    browser = Browser(web(app))
    came = (("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"))
    answer = browser.get("/runs/7?tz=own", *came)
    assert answer.status == 200
    assert 'content="0;url=/runs/7?tz=own"' in answer.text
    assert 'content="0;url=/"' in browser.get("//evil.example/x", *came).text


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        ("/p/runs?q=a", "/p/runs?q=a"),
        ("", "/p/"),
        ("//evil.example", "/p/"),
        ("/p//evil.example", "/p/"),
        ("https://evil.example/p/", "/p/"),
        ("/other", "/p/"),
        ("/p/../other", "/p/"),
        ("/p/\\evil", "/p/"),
        ("/p/\nx", "/p/"),
    ],
)
def test_after_a_login_one_gets_to_a_page_of_ours(target, leads_to):
    assert local_target(target, "/p") == leads_to


class Later(ThreadedRuntime):
    ahead_s = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead_s


def test_one_time_link_shows_a_button_and_lets_in_once(app):
    link = OneTimeLink(Later(), "root")
    browser = Browser(web(app, link=link))
    target = f"/enter?once={link.secret}"
    for _ in range(2):  # looking does not use it up
        page = browser.get(target)
        assert page.status == 200
        assert "<button" in page.text
        assert not page.header("set-cookie")
    answer = browser.post("/enter", {"once": link.secret})
    assert answer.status == 303
    assert browser.get("/access").status == 200
    other = Browser(browser.app)
    assert other.post("/enter", {"once": link.secret}).status == 403
    assert other.get(target).status == 403
    assert link.secret not in repr(link)
    browser.app._door.authentication.close()  # what was counted is written
    refused, entry = app.operations.audit.entries(act="log in")
    assert (refused.outcome, refused.how, refused.who) == ("refused", "link", "unknown")
    assert (entry.who, entry.how) == ("local:root", "link")


def test_one_time_link_is_refused_if_it_is_forged_or_old(app):
    runtime = Later()
    link = OneTimeLink(runtime, "root")
    browser = Browser(web(app, link=link))
    assert browser.post("/enter", {"once": "0" * 64}).status == 403
    assert browser.get("/enter?once=\xff").status == 403
    runtime.ahead_s = LINK_LASTS_S + 1
    assert browser.post("/enter", {"once": link.secret}).status == 403
    assert Browser(web(app)).post("/enter", {"once": ""}).status == 403


@pytest.mark.parametrize(
    ("address", "headers", "is_in"),
    [
        ("10.0.0.5", [("X-Fencepost-Secret", SECRET), ("X-Fencepost-User", "ann")], True),
        ("10.0.0.5", [("X-Fencepost-Secret", SECRET + "x"), ("X-Fencepost-User", "ann")], False),
        ("10.0.0.5", [("X-Fencepost-User", "ann")], False),
        ("10.0.0.5", [("X-Fencepost-Secret", SECRET)], False),
        ("10.0.0.5", [("X-Fencepost-Secret", SECRET), ("X-Fencepost-User", "eve")], None),
        ("192.0.2.1", [("X-Fencepost-Secret", SECRET), ("X-Fencepost-User", "ann")], False),
        (
            "192.0.2.1",
            [("X-Fencepost-Secret", SECRET), ("X-Fencepost-User", "ann"), ("X-Forwarded-For", "10.0.0.5")],
            False,
        ),
    ],
)
def test_proxy_is_believed_by_address_and_secret_together(app, access, address, headers, is_in):
    access.give("proxy:ann", "viewer")
    proxy = ProxyHeader.of(["10.0.0.0/24"], SECRET)
    browser = Browser(web(app, proxy=proxy), address=address)
    answer = browser.get("/runs", *headers)
    assert answer.status == {True: 200, None: 403, False: 401}[is_in]
    assert browser.post("/login", {"name": "a", "password": "b"}).status == 403  # no passwords beside a proxy


@pytest.mark.parametrize(("addresses", "secret"), [([], SECRET), (["10.0.0.0/24"], "short"), (["nowhere"], SECRET)])
def test_proxy_without_addresses_or_with_a_short_secret_is_refused(addresses, secret):
    with pytest.raises(InvalidSetting):
        ProxyHeader.of(addresses, secret)


def test_host_application_vouches_for_people_also_asynchronously(app):
    async def who(request):
        name = request.headers.get("x-session")
        return HostPrincipal(name, {"settle": "viewer"}) if name else None

    browser = Browser(web(app, auth=who))
    assert browser.get("/runs").status == 401
    page = browser.get("/runs", ("X-Session", "ann"))
    assert page.status == 200
    assert "host:ann" in page.text
    assert browser.get("/runs", ("X-Session", "ann"), ("Authorization", "Bearer of-the-host")).status == 200


def test_both_ways_of_vouching_at_once_are_refused(app):
    with pytest.raises(InvalidSetting):
        web(app, auth=lambda request: "ann", proxy=ProxyHeader.of(["10.0.0.0/24"], SECRET))
