"""The HTTP fence on real sockets: uvicorn and WSGI servers, stale writers answered with 409 and nothing written."""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.core.fencing import FencingToken
from fencepost.errors import InvalidHeader, LeaseLost
from fencepost.fence.http import GARBLED, MISSING, STALE, UNKNOWN
from fencepost.fence.http_header import NAME, parsed
from fencepost.fence.marks import MemoryMarks, RedisMarks
from fencepost.fences import (
    AsgiFence,
    Marks,
    WsgiFence,
    fence_headers,
    marks_in_memory,
    marks_in_redis,
    raise_if_stale,
)
from fencepost.threaded import ThreadedRuntime
from testbed.valkey import Valkey
from tests.fence.serving import KEY, Answer, Effect, Service, append, asgi_service, token, wsgi_service

RUNTIME = ThreadedRuntime()
Serve = Callable[..., Service]


@pytest.fixture(params=["asgi", "wsgi", "wsgi-lazily"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Start a service behind the fence; the options are those of the middleware."""
    with ExitStack() as services:

        def start(marks: Marks | None = None, effect: Effect = append, **options: Any) -> Service:
            terms = {"marks": marks or marks_in_memory(), **options}
            if request.param == "asgi":
                service = asgi_service(lambda app: AsgiFence(app, **terms), effect)
            else:
                lazily = request.param == "wsgi-lazily"
                service = wsgi_service(lambda app: WsgiFence(app, **terms), effect, lazily=lazily)
            return services.enter_context(service)

        yield start


class TestHeader:
    def test_is_a_structured_field_of_strings(self) -> None:
        shown = FencingToken("job:settle", 1790000000000000, 'n"1\\/17/1', "node")
        assert fence_headers(shown) == {
            "Fencepost-Token": 'key="job:settle", token="1790000000000000", grant="n\\"1\\\\/17/1"'
        }
        assert fence_headers(FencingToken("café", 1, "%"))[NAME] == 'key=%"caf%c3%a9", token="1", grant="%"'

    @given(
        key=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=200),
        number=st.integers(1, 2**53 - 1),
        grant=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=200),
    )
    @example(key='a"b\\c%d,e', number=2**53 - 1, grant='"')
    def test_comes_back_as_it_was(self, key: str, number: int, grant: str) -> None:
        value = fence_headers(FencingToken(key, number, grant, "left out"))[NAME]
        assert value.isascii()
        assert parsed(value) == FencingToken(key, number, grant)

    @pytest.mark.parametrize(
        "garbage",
        [
            "",
            "179",
            'key="a"',
            'key="a", token="7"',
            'key="a", token="7", grant=""',
            'key="a", token="0", grant="g"',
            'key="a", token="-7", grant="g"',
            'key="a", token="7.5", grant="g"',
            'key="a", token="٧", grant="g"',
            f'key="a", token="{2**53}", grant="g"',
            f'key="a", token="{"9" * 400}", grant="g"',
            'key="a", token="7", grant="g",',
            'key="a", token="7", grant="g" trailing',
            'key="a", token="7", grant="g", token="8"',
            'key="a"; q=1, token="7", grant="g"',
            'key=a, token="7", grant="g"',
            'key="a\\x", token="7", grant="g"',
            'key=%"%ff", token="7", grant="g"',
            'key=%"%00", token="7", grant="g"',
            'key="' + "a" * 5000 + '", token="7", grant="g"',
        ],
    )
    def test_garbage_is_refused_with_a_reason(self, garbage: str) -> None:
        with pytest.raises(InvalidHeader, match=NAME):
            parsed(garbage)

    @given(st.text(max_size=80) | st.text('key="\\%a1,= tokengrant', max_size=60))
    def test_whatever_is_sent_is_understood_or_refused(self, text: str) -> None:
        with contextlib.suppress(InvalidHeader):
            assert parsed(text).token > 0

    def test_more_members_are_let_be_and_a_short_number_may_stand_without_quotes(self) -> None:
        assert parsed('key="a",token=7 ,\tgrant="g", later="x"') == FencingToken("a", 7, "g")


class TestMiddleware:
    def test_lets_in_what_is_not_older_and_refuses_what_is(self, serve: Serve) -> None:
        service = serve()
        assert service.write(token(7)).status == 200
        assert service.write(token(8)).body == b"written"
        refused = service.write(token(7))
        assert refused.status == 409
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json() == {
            "type": STALE,
            "title": "A stale writer was refused",
            "status": 409,
            "detail": "a newer holder has written with token 8; nothing was written",
            "key": KEY,
            "token": 7,
            "current_token": 8,
        }
        assert service.write(token(8)).status == 200
        assert service.written == [7, 8, 8]

    def test_refuses_an_equal_token_of_another_grant(self, serve: Serve) -> None:
        service = serve()
        service.write(token(7, "a"))
        assert service.write(token(7, "b")).status == 409
        assert service.written == [7]

    def test_keeps_keys_apart(self, serve: Serve) -> None:
        service = serve()
        service.write(token(8))
        assert service.write(token(7, key="job:report")).status == 200

    def test_answers_428_without_a_token_unless_it_is_optional(self, serve: Serve) -> None:
        service = serve()
        answer = service.send("POST")
        assert (answer.status, answer.json()["type"]) == (428, MISSING)
        assert service.written == []
        lenient = serve(required=False)
        assert lenient.send("POST").status == 200
        lenient.write(token(8))
        assert lenient.write(token(7)).status == 409
        assert lenient.written == [0, 8]

    def test_answers_400_to_garbage_even_where_tokens_are_optional(self, serve: Serve) -> None:
        service = serve(required=False)
        answer = service.send("PUT", {NAME: "token=x"})
        assert (answer.status, answer.json()["type"]) == (400, GARBLED)
        assert service.written == []

    def test_lets_reading_pass(self, serve: Serve) -> None:
        service = serve()
        assert [service.send(method).status for method in ("GET", "OPTIONS")] == [200, 200]
        assert [service.send(method).status for method in ("PUT", "PATCH", "DELETE", "REPORT")] == [428] * 4
        only_put = serve(methods={"PUT"})
        assert [only_put.send(method).status for method in ("POST", "PUT")] == [200, 428]

    def test_takes_only_the_keys_that_guard_it(self, serve: Serve) -> None:
        service = serve(keys={KEY})
        assert service.write(token(7)).status == 200
        answer = service.write(token(9, key="mine"))
        assert answer.status == 400
        assert "does not guard" in answer.json()["detail"]

    def test_a_token_from_the_future_does_not_close_the_fence(self, serve: Serve) -> None:
        service = serve()
        answer = service.write(token(2**53 - 1))
        assert answer.status == 409
        assert "a day ahead" in answer.json()["detail"]
        assert service.write(token(RUNTIME.wall_us())).status == 200

    def test_turns_writers_away_when_the_marks_cannot_be_asked(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Valkey() as server:
            marks = marks_in_redis(server.client())
            service = serve(marks)
            assert service.write(token(7)).status == 200
            server.kill()
            answer = service.write(token(8))
        assert (answer.status, answer.json()["type"]) == (503, UNKNOWN)
        assert service.written == [7]
        assert "could not read the mark" in caplog.text

    def test_a_lease_of_the_applications_own_is_its_own_affair(self, serve: Serve) -> None:
        def loses_another(fence: Any, written: list[int]) -> None:
            raise LeaseLost("its own", 5, "gone")

        assert serve(effect=loses_another).write(token(7)).status == 500


class TestWindow:
    """A request that was let in, and is overtaken before its application writes."""

    def overtaken(self, serve: Serve, *, checks: bool) -> tuple[Service, int]:
        inside, go_on = threading.Event(), threading.Event()

        def slow(fence: Any, written: list[int]) -> None:
            if fence.fencing.token == 7:
                inside.set()
                assert go_on.wait(20)
            if checks:
                fence.check()
            append(fence, written)

        service = serve(effect=slow)
        statuses: list[int] = []
        older = threading.Thread(target=lambda: statuses.append(service.write(token(7)).status))
        older.start()
        assert inside.wait(20)
        assert service.write(token(8)).status == 200
        go_on.set()
        older.join(20)
        return service, statuses[0]

    def test_is_open_to_an_application_that_does_not_check(self, serve: Serve) -> None:
        service, status = self.overtaken(serve, checks=False)
        assert (service.written, status) == ([8, 7], 200), "the reason for checking: the older one wrote last"

    def test_is_narrowed_by_checking_again(self, serve: Serve) -> None:
        service, status = self.overtaken(serve, checks=True)
        assert (service.written, status) == ([8], 409)

    def test_marks_outside_a_database_cannot_be_checked_in_a_transaction(self, serve: Serve) -> None:
        told: list[str] = []

        def checks(fence: Any, written: list[int]) -> None:
            try:
                fence.check(object())
            except TypeError as error:
                told.append(str(error))

        serve(effect=checks).write(token(7))
        assert "are not in a database" in told[0]


class TestPausedWriter:
    def test_is_refused_when_it_wakes_and_knows_it(self, serve: Serve) -> None:
        service = serve()
        service.write(token(7))
        with paused_writer(service.port, token(7)) as wake:
            assert service.write(token(8)).status == 200
            said = wake()
        assert said == "LeaseLost 7"
        assert service.written == [7, 8]


_WRITER = """
import sys, http.client
from fencepost.fences import FencingToken, LeaseLost, fence_headers, raise_if_stale
from tests.fence.serving import Service, token
print("ready", flush=True)
input()
me = token(int(sys.argv[2]))
try:
    raise_if_stale(me, Service(int(sys.argv[1]), []).write(me))
    print("written")
except LeaseLost as lost:
    print("LeaseLost", lost.token)
"""


@contextlib.contextmanager
def paused_writer(port: int, who: FencingToken) -> Iterator[Callable[[], str]]:
    """A process that is about to write, and is stopped; what is yielded lets it go on, and returns what it said."""
    command = [sys.executable, "-c", _WRITER, str(port), str(who.token)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()

        def wake() -> str:
            process.send_signal(signal.SIGCONT)
            return process.communicate(timeout=30)[0].strip()

        try:
            yield wake
        finally:
            process.kill()


class TestMarksInRedis:
    def test_are_shared_by_services(self, serve: Serve) -> None:
        with Valkey() as server, server.client() as client:
            one, other = serve(marks_in_redis(client)), serve(marks_in_redis(client))
            assert one.write(token(8)).status == 200
            refused = other.write(token(7))
            assert (refused.status, refused.json()["current_token"]) == (409, 8)
            assert client.ttl(f"fencepost:fence:{{{KEY}}}") == -1

    def test_of_single_runs_do_not_stay_for_ever(self) -> None:
        with Valkey() as server, server.client() as client:
            marks, key = RedisMarks(client), "ledger:1f0c62d7a9be/run:000000000005"
            shown = FencingToken(key, 7, "g")
            assert marks.admit(shown) is None
            assert marks.admit(shown._replace(token=6)) is not None
            assert 0 < client.ttl(f"fencepost:fence:{{{key}}}") <= 30 * 86400


class CrowdedRuntime(ThreadedRuntime):
    """Whoever reads the clock waits a moment for company, and counts who is there."""

    def __init__(self) -> None:
        self.inside = self.most_inside = 0
        self.company = threading.Event()

    def wall_us(self) -> int:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        if self.inside > 1:
            self.company.set()
        self.company.wait(0.1)
        self.inside -= 1
        return super().wall_us()


def test_marks_in_memory_are_compared_and_raised_in_one_step() -> None:
    runtime = CrowdedRuntime()
    marks, let_in = MemoryMarks(runtime), []

    def ask(grant_id: str) -> None:
        if marks.admit(token(7, grant_id)) is None:
            let_in.append(grant_id)

    threads = [threading.Thread(target=ask, args=(f"g{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert runtime.most_inside == 1
    assert len(let_in) == 1


def test_only_the_fences_own_409_is_taken_for_a_loss() -> None:
    other = Answer(409, {"content-type": "application/problem+json"}, b'{"type": "about:blank"}')
    raise_if_stale(token(7), other)
    raise_if_stale(token(7), Answer(409, {"content-type": "text/html"}, b"<html>"))
    raise_if_stale(token(7), Answer(409, other.headers, b'["a proxy\'s own"]'))
    with pytest.raises(LeaseLost, match="a service refused it: gone"):
        raise_if_stale(token(7), Answer(409, other.headers, f'{{"type": "{STALE}", "detail": "gone"}}'.encode()))
