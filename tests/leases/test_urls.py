import pytest

from fencepost import locks
from fencepost.errors import InvalidUrl, MissingExtra
from fencepost.leases import schemes
from fencepost.leases.schemes import SCHEMES, store_from_url
from fencepost.leases.urls import StoreUrl
from fencepost.threaded import ThreadedRuntime


def test_a_url_is_taken_apart() -> None:
    url = StoreUrl.parse("etcd://us%40er:p%2Fw@a:1,b:2,[::1]:3/some/prefix?ca=/x.pem&call_timeout=500ms")
    assert url.hosts == (("a", 1), ("b", 2), ("::1", 3))
    assert (url.user, url.password) == ("us@er", "p/w")
    assert url.path == "/some/prefix"
    assert url.options["ca"] == "/x.pem"
    assert url.call_timeout_s == 0.5


def test_a_password_is_never_shown() -> None:
    url = StoreUrl.parse("postgresql://me:sesame@db:5432/app?sslkey=sesame")
    assert "sesame" not in f"{url} {url!r}"
    assert str(url) == "postgresql://me:***@db:5432/app"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "write a URL as scheme://"),
        ("gopher://x", "no store for gopher://; there are: etcd"),
        ("redis://h:99999/0", "'99999' of host 'h' is not a port number"),
        ("redis://h:port/0", "is not a port number"),
        ("memory://?colour=red", "has no option 'colour'"),
        ("redis://[::1", "cannot be read"),
        ("sqlite:///a#b.db", "write # as %23"),
        ("redis://u:pa#ss@h:1/0", "cannot be read"),
        ("postgresql://u:p@SECRET/w@h:1/d", "^the URL cannot be read"),
    ],
)
def test_bad_urls_are_refused_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidUrl, match=says) as error:
        locks.connect(text)
    assert "\n" not in str(error.value)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'kazoo'", name="kazoo")

    monkeypatch.setattr(schemes.importlib, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"needs the package 'kazoo': pip install './fencepost\[zookeeper\]'"):
        store_from_url("zookeeper://h", ThreadedRuntime())


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_every_scheme_has_a_store_that_states_its_grade(scheme: str) -> None:
    hosts = {"sqlite": "/x.db", "mysql": "h/d", "mariadb": "h/d", "redis+sentinel": "h:1/m/0", "kubernetes": "ns"}
    store = store_from_url(f"{scheme}://{hosts.get(scheme, 'h')}", ThreadedRuntime())
    assert store.capabilities.grade
    assert store.capabilities.loses, "a store says what it does not survive"


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0",
        "postgresql://127.0.0.1:1/x",
        "postgresql+advisory://127.0.0.1:1/x",
        "mysql://root@127.0.0.1:1/x",
        "etcd://127.0.0.1:1",
        "zookeeper://127.0.0.1:1",
    ],
)
def test_an_unreachable_server_is_one_sentence_that_names_it(url: str) -> None:
    with pytest.raises(locks.StoreUnavailable, match=r"127\.0\.0\.1") as error:
        locks.connect(url)
    assert "\n" not in str(error.value)
