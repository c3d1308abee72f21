"""The fence on real Valkey and Redis: stale writers write nothing, several commands land together or not at all."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.retry import Retry

from fencepost.core.fencing import FencingToken, Mark
from fencepost.errors import LeaseLost
from fencepost.fence.redis import RedisFence
from fencepost.threaded import ThreadedRuntime
from testbed.proxy import Proxy
from testbed.valkey import Valkey, ValkeyCluster

RUNTIME = ThreadedRuntime()
FENCE = "fence:{stock}"


def token(number: int, grant_id: str | None = None) -> FencingToken:
    return FencingToken("job:settle", number, grant_id or f"grant-{number}", f"node-{number}")


@pytest.fixture(scope="module", params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Iterator[Valkey]:
    with Valkey(redis=request.param == "redis") as running:
        yield running


@pytest.fixture
def client(server: Valkey) -> Iterator[Redis]:
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def fence(client: Redis) -> RedisFence:
    return RedisFence(client, FENCE)


class TestOneCommand:
    def test_is_applied_and_raises_the_mark(self, fence: RedisFence, client: Redis) -> None:
        assert fence.mark() is None
        assert fence.execute(token(7), "SET", "a", "x") == "OK"
        assert client.get("a") == "x"
        assert fence.mark() == Mark(7, "grant-7", "node-7")
        assert client.ttl(FENCE) == -1, "a mark that expired would let an old token in"

    def test_of_a_stale_writer_is_refused_and_writes_nothing(self, fence: RedisFence, client: Redis) -> None:
        fence.execute(token(8), "SET", "a", "new")
        with pytest.raises(LeaseLost, match=r"node-8.*token 8; nothing was written") as lost:
            fence.execute(token(7), "SET", "a", "old")
        assert (lost.value.name, lost.value.token) == ("job:settle", 7)
        assert client.get("a") == "new"
        assert fence.mark() == Mark(8, "grant-8", "node-8")

    def test_is_refused_for_an_equal_token_of_another_grant(self, fence: RedisFence, client: Redis) -> None:
        fence.execute(token(7, "a"), "SET", "a", "first")
        with pytest.raises(LeaseLost, match="another grant"):
            fence.execute(token(7, "b"), "SET", "a", "second")
        fence.execute(token(7, "a"), "SET", "a", "again")
        assert client.get("a") == "again"

    def test_answers_as_the_command_does(self, fence: RedisFence, client: Redis) -> None:
        assert fence.execute(token(1), "GET", "nothing") is None
        assert fence.execute(token(1), "INCRBY", "n", 5) == 5
        assert fence.execute(token(1), "OBJECT ENCODING", "n") == "int"
        assert fence.execute(token(1), "SET", "bytes", b"\x00\xff") == "OK"
        with pytest.raises(ResponseError, match=r"HSET behind fence .* failed: WRONGTYPE"):
            fence.execute(token(1), "HSET", "n", "field", 1)

    def test_compares_numbers_of_full_size_exactly(self, fence: RedisFence) -> None:
        now = RUNTIME.wall_us()
        fence.execute(token(now + 1), "SET", "a", 1)
        with pytest.raises(LeaseLost):
            fence.execute(token(now), "SET", "a", 2)
        mark = fence.mark()
        assert mark is not None
        assert mark.token == now + 1

    def test_with_a_token_from_the_future_does_not_close_the_fence(self, fence: RedisFence, client: Redis) -> None:
        day_us = 24 * 3600 * 1_000_000
        with pytest.raises(LeaseLost, match="a day ahead"):
            fence.execute(token(RUNTIME.wall_us() + day_us + 60_000_000), "SET", "a", 1)
        assert client.keys() == []
        fence.execute(token(RUNTIME.wall_us() + day_us - 60_000_000), "SET", "a", 1)

    def test_works_when_the_server_has_forgotten_the_script(self, fence: RedisFence, client: Redis) -> None:
        fence.execute(token(1), "SET", "a", 1)
        client.script_flush()
        fence.execute(token(1), "SET", "a", 2)
        assert client.get("a") == "2"


def test_a_mark_can_be_told_to_expire(client: Redis) -> None:
    RedisFence(client, FENCE, expire="1h").check(token(1))
    assert 3500 < client.ttl(FENCE) <= 3600


def test_the_mark_and_the_script_survive_a_restart() -> None:
    with Valkey(persist=True) as server:
        with server.client() as client:
            RedisFence(client, FENCE).execute(token(8), "SET", "a", "new")
        server.kill()
        server.start()
        with server.client() as client:
            with pytest.raises(LeaseLost):
                RedisFence(client, FENCE).execute(token(7), "SET", "a", "old")
            assert client.get("a") == "new"


class TestPipeline:
    def test_applies_everything_after_the_check(self, fence: RedisFence, client: Redis) -> None:
        with fence.pipeline(token(7)) as pipe:
            pipe.set("a", 1, ex=60).incr("n")
            pipe.hset("h", mapping={"x": 1.5, "y": b"\xff"})
            assert client.keys() == [], "queued commands are applied by execute()"
            assert pipe.execute() == ["OK", 1, 2]
        assert client.ttl("a") > 0
        assert fence.mark() == Mark(7, "grant-7", "node-7")

    def test_of_a_stale_writer_writes_nothing(self, fence: RedisFence, client: Redis) -> None:
        pipe = fence.pipeline(token(7)).set("a", "old").set("b", "old")
        fence.pipeline(token(8)).set("a", "new").execute()
        with pytest.raises(LeaseLost, match="token 8"):
            pipe.execute()
        assert (client.get("a"), client.get("b")) == ("new", None)

    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            (("LPUSH", "text", "x"), "command 4 of 5 .LPUSH.* WRONGTYPE"),
            (("INCR", "text"), "not an integer"),
            (("NOSUCH", "a"), "Invalid command"),
            (("SET", "a"), "number of arg"),
            (("PUBLISH", "channel", "x"), "no key"),
            (("HSET", FENCE, "token", 0), "the key of the fence"),
        ],
    )
    def test_with_one_bad_command_writes_nothing(
        self, fence: RedisFence, client: Redis, bad: tuple[Any, ...], says: str
    ) -> None:
        client.set("text", "abc")
        client.set("a", "before", ex=1000)
        client.rpush("list", "x")
        pipe = fence.pipeline(token(7)).set("a", "after").set("fresh", 1).rpush("list", "y")
        pipe.execute_command(*bad)
        pipe.set("last", 1)
        with pytest.raises(ResponseError, match=says):
            pipe.execute()
        assert (client.get("a"), client.get("text"), client.lrange("list", 0, -1)) == ("before", "abc", ["x"])
        assert 900 < client.ttl("a") <= 1000
        assert not client.exists("fresh", "last")

    def test_may_be_told_not_to_take_back(self, fence: RedisFence, client: Redis) -> None:
        client.set("text", "abc")
        with pytest.raises(ResponseError, match="command 2 of 2"):
            fence.pipeline(token(7), take_back=False).set("a", 1).lpush("text", 1).execute()
        assert client.get("a") == "1"

    def test_left_without_execute_writes_nothing(self, fence: RedisFence, client: Redis) -> None:
        with fence.pipeline(token(7)) as pipe:
            pipe.set("a", 1)
        assert pipe.execute() == []
        assert client.get("a") is None

    def test_of_many_commands_is_one_round_trip(self, fence: RedisFence, client: Redis) -> None:
        pipe = fence.pipeline(token(7))
        for number in range(2000):
            pipe.set(f"k{number}", number)
        assert pipe.execute() == ["OK"] * 2000
        assert client.dbsize() == 2001


def test_two_writers_never_leave_a_mixture(server: Valkey, client: Redis) -> None:
    """Each writer writes its token to both keys; whatever the order, the highest stays, and the keys agree."""
    errors: list[LeaseLost] = []

    def write(number: int) -> None:
        with server.client() as own:
            fence = RedisFence(own, FENCE)
            try:
                for _ in range(30):
                    fence.pipeline(token(number)).set("a", number).set("b", number).execute()
            except LeaseLost as lost:
                errors.append(lost)

    threads = [threading.Thread(target=write, args=(number,)) for number in (3, 1, 4, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (client.get("a"), client.get("b")) == ("4", "4")
    assert all(lost.token < 4 for lost in errors)


def test_a_writer_whose_connection_broke_while_it_slept_is_refused(server: Valkey, client: Redis) -> None:
    """A client that connects anew by itself, and checks its health, must not get past the fence by that."""
    with Proxy(server.host, server.port) as proxy:
        retry = Retry(NoBackoff(), 3)
        sleeper = Redis(host=proxy.host, port=proxy.port, decode_responses=True, retry=retry, health_check_interval=1)
        pipe = RedisFence(sleeper, FENCE).pipeline(token(7)).set("a", "old").set("b", "old")
        RedisFence(sleeper, FENCE).check(token(7))
        RedisFence(client, FENCE).execute(token(8), "SET", "a", "new")
        proxy.cut()
        with pytest.raises(LeaseLost):
            pipe.execute()
        sleeper.close()
    assert (client.get("a"), client.get("b")) == ("new", None)


def test_a_server_that_is_gone_is_told_by_the_clients_own_error() -> None:
    with Valkey() as server:
        client = server.client()
        server.kill()
        with pytest.raises(RedisConnectionError):
            RedisFence(client, FENCE).execute(token(1), "SET", "a", 1)
        client.close()


class TestClients:
    def test_of_valkey_py_works_alike(self, server: Valkey, client: Redis) -> None:
        import valkey  # comes with the server of the tests

        with valkey.Valkey(host=server.host, port=server.port) as own:
            fence = RedisFence(own, FENCE)
            assert fence.pipeline(token(8)).set("a", "x").get("a").execute() == [b"OK", b"x"]
            own.script_flush()
            with pytest.raises(LeaseLost):
                fence.execute(token(7), "SET", "a", "old")
            with pytest.raises(valkey.exceptions.ResponseError):
                fence.execute(token(8), "LPUSH", "a", "old")

    def test_that_are_async_or_none_are_refused(self) -> None:
        with pytest.raises(TypeError, match="async"):
            RedisFence(AsyncRedis(), FENCE)
        with pytest.raises(TypeError, match=r"redis-py or valkey-py, not a builtins\.dict"):
            RedisFence({}, FENCE)

    def test_take_runs_and_leases_and_nothing_else(self, fence: RedisFence) -> None:
        with pytest.raises(TypeError, match="a run, a lease or a FencingToken, not int"):
            fence.execute(179, "SET", "a", 1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with ValkeyCluster() as group:
        nodes = [ClusterNode(node.host, node.port) for node in group.nodes]
        client = RedisCluster(startup_nodes=nodes, decode_responses=True)
        yield client
        client.close()


class TestCluster:
    def test_with_one_hash_tag_it_works(self, cluster: RedisCluster) -> None:
        fence = RedisFence(cluster, FENCE)
        assert fence.pipeline(token(8)).set("{stock}:1", 1).set("{stock}:2", 2).execute() == ["OK", "OK"]
        fence.execute(token(8), "SET", "{stock}:3", 3)
        with pytest.raises(LeaseLost):
            fence.pipeline(token(7)).set("{stock}:1", 0).set("{stock}:2", 0).execute()
        assert cluster.mget("{stock}:1", "{stock}:2", "{stock}:3") == ["1", "2", "3"]

    def test_without_it_is_refused_in_a_sentence(self, cluster: RedisCluster) -> None:
        fence = RedisFence(cluster, "fence:{other}")
        with pytest.raises(ValueError, match="same hash tag"):
            fence.pipeline(token(8)).set("{other}:1", 1).set("elsewhere", 2).execute()
        with pytest.raises(ValueError, match="same hash tag"):
            fence.execute(token(8), "MSET", "{other}:1", 1, "elsewhere", 2)
        assert cluster.exists("{other}:1", "fence:{other}") == 0
