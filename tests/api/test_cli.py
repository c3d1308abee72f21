"""Commands by a server: the same output and exit codes as beside the ledger, and no password of the database."""

import inspect
import json
import re
import shlex
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost import App
from fencepost.access import Access
from fencepost.app.composing import publish
from fencepost.app.concerns import Concerns
from fencepost.app.lock_operations import LockOperations
from fencepost.app.operations import Operations
from fencepost.cli.remote.access import RemoteAccess
from fencepost.cli.remote.concerns import RemoteConcerns
from fencepost.cli.remote.locks import RemoteLocks
from fencepost.cli.remote.operations import RemoteOperations
from fencepost.core.rights import Scope
from fencepost.web import web
from testbed.wait import until
from tests.api.serving import served
from tests.cli.inside import Done, call, shop

Ask = Callable[..., Done]
ROOT = Scope.direct("root")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger on which a node has run a few jobs."""
    url = f"sqlite:///{tmp_path_factory.mktemp('both')}/ledger.db"
    app = shop(url)
    with app.running(grace="10s"):
        wanted = [app.enqueue("add", params={"a": n}).run_id for n in range(3)]
        wanted.append(app.enqueue("boom", params={"word": "no\nmore \x1b[31mred"}).run_id)
        app.enqueue("add", params={"a": 9}, delay="1d", key="later")
        until(lambda: all(app.operations.run(each).state in ("succeeded", "dead") for each in wanted), 60, what="ended")
    app.close()
    return url


def token_for(url: str, role: str = "admin", *jobs: str) -> str:
    app = App(url)
    made = Access(app.ledger, ROOT).add_api_token("cli", role, expires_in="1d", jobs=jobs or ("",))
    app.close()
    return made.secret


@pytest.fixture(scope="module")
def asked(ledger: str) -> Iterator[Ask]:
    """Call a command by a server on the ledger."""
    secret = token_for(ledger)
    app = App(ledger)
    with served(web(app)) as address:
        yield lambda *words: call("--server", address, *words, env={"FENCEPOST_TOKEN": secret})
    app.close()


READING = [
    "runs",
    "runs --json",
    "runs --failed",
    "runs --job add --state succeeded,waiting --json",
    "runs --limit 2 --json",
    "runs --before 3 --json",
    "runs --since 1h --json",
    "runs -p a=9",
    "runs --schedule beat --queue default --node no --by scheduler --key k --retry-of 2 --until 1h --json",
    "runs --waits time --id 5 --id 1",
    "runs --waits godot",
    "runs --job add -p a=1 --json",
    "runs -p a",
    "runs --since 2020-01-01",
    "runs --job ad",
    "runs --state what",
    "show 1 --json",
    "show 4",
    "show 5",
    "show 999",
    "logs 1",
    "logs 2 --json",
    "jobs",
    "jobs --json",
    "jobs add",
    "jobs settle --json",
    "jobs nothing",
    "schedules list",
    "schedules list --json",
    "schedules list --job settle",
    "schedules show settle",
    "schedules show nothing",
    "schedules preview settle --year 2026 --json",
    "schedules preview nothing",
    "why beat",
    "why settle --json",
    "why settle --at 2026-03-29T01:00Z",
    "why nothing",
    "nodes",
    "nodes --all --json",
    "nodes list --all",
    "pauses",
    "pauses --json",
    "leader",
    "leader --json",
    "leader --history",
    "locks keys",
    "locks keys --json",
    "figures",
    "figures settle --since 7d",
    "figures nonsense",
    "figures --since 2099-01-01 --limit 1",
    "journal",
    "journal --json --limit 3",
    "journal --what nonsense",
    "journal --run 1",
    "restored",
    "restored --json",
    "audit list --json",
    "audit verify",
    "audit verify --json",
    "audit export",
    "audit list --job ad",
    "audit list --act retry --json",
    "audit list --act nonsense",
    "backfill settle --from 2026-01-01 --to 2026-01-05 --tz UTC --dry-run --json",
    "users list",
    "users list --json",
    "permissions list --json",
    "permissions list user:nobody",
    "api-tokens list --all",
]


@pytest.mark.parametrize("words", READING)
def test_reading_prints_the_same_by_a_server(words: str, ledger: str, asked: Ask) -> None:
    beside, remote = call(*words.split(), ledger=ledger), asked(*words.split())
    # How long ago something was, and when the API token was used last, may change in between.
    assert _steady(remote.stdout) == _steady(beside.stdout)
    assert (remote.returncode, _steady(remote.stderr)) == (beside.returncode, _steady(beside.stderr))


def _steady(text: str) -> str:
    text = re.sub(r"^beat at \S+|as of \S+Z", "…", text)  # its latest due time: it is due each second
    return re.sub(r"\(?now [0-9.]+[a-z]+\)?|\d+(\.\d+)?(s|ms) (ago|late)", "…", text)


ACTING = [
    "trigger add -p a=3 --reason why --json",
    "trigger add -p a=3",
    "trigger add -p a=3 --json",
    "trigger add -p a=4 --key k",
    "trigger add -p a=4 --key k",
    "trigger add -p a=three",
    "trigger nothing",
    "trigger add -p c=1 -p a=1",
    "cancel 1 --json",
    "cancel 1",
    "retry 1 --json",
    "retry 1",
    "retry 1 --again",
    "retry 999",
    "retry 2",
    "release 2",
    "cancel 2 --reason enough",
    "reprocess --failed --after-id 0",
    "reprocess --failed --after-id 0 --json",
    "backfill settle --from 2026-01-01 --to 2026-01-05 --tz UTC --key b",
    "backfill settle --from 2026-01-01 --to 2026-01-05 --tz UTC --key b --json",
    "backfill settle --from 2020-01-01 --to 2026-01-05 --tz UTC --limit 3",
    "backfill settle --from 2090-01-01 --to 2090-01-02 --tz UTC",
    "backfill settle --from 2090-01-01 --to 2090-01-02 --tz UTC --dry-run",
    "schedules pause settle --for 2h --reason bank",
    "schedules resume settle --json",
    "schedules put settle:9 settle '0 7 * * 1-5' --tz Asia/Seoul --reason 'customer 9'",
    "schedules put settle:9 settle 'every 5m' --new",
    "schedules put settle:9 settle 'every 5m' --json",
    "schedules put settle settle 'every 5m'",
    "schedules put settle:9 settle never",
    "schedules put settle:9 nothing 'every 5m'",
    "schedules delete settle",
    "schedules delete nothing",
    "pause --all --for 2h --reason bank",
    "pause --queue default --reason mail --json",
    "pause --queue defualt --reason mail",
    "pause --all",
    "resume --queue defalt",
    "resume --queue nothing",
    "pause --reason what",
    "pauses",
    "trigger add -p a=77 --json",
    "trigger add -p a=78",
    "resume --all --json",
    "resume --queue default",
    "resume --queue default",
    "nodes drain nothing --reason gone",
    "nodes drain nothing",
    "jobs rename nap settle",
    "jobs rename naap siesta",
    "jobs rename nap siesta",
    "jobs rename boom add --into-existing --json",
    "jobs forget nothing --reason x",
    "jobs forget siesta --reason gone --json",
    "users add ann --role viewer --job add --job later --password-file PASSWORD",
    "users add ann --password-file PASSWORD",
    "users disable ann",
    "users enable ann",
    "users disable bob",
    "permissions give user:ann operator --json",
    "permissions give nobody admin",
    "permissions take user:ann --job add --job ad",
    "permissions take user:ann --job ad",
    "permissions take user:ann --all",
    "permissions take nobody",
    "permissions take user:nobody",
    "users remove ann",
    "api-tokens revoke none",
    "audit prune --before 2020-01-01T00:00Z --reason old",
    "restored --accept --reason no",
]


def test_acting_prints_the_same_by_a_server_and_leaves_the_same(tmp_path: Path) -> None:
    """The same acts, in turn, on two ledgers that were one: by a server on the one, beside the ledger on the other."""
    url = f"sqlite:///{tmp_path}/a.db"
    app = shop(url)
    publish(app)
    app.close()
    (tmp_path / "word").write_text("correct horse battery\n")
    secret = token_for(url)
    shutil.copyfile(tmp_path / "a.db", tmp_path / "b.db")
    other = f"sqlite:///{tmp_path}/b.db"
    by_server = App(url)
    with served(web(by_server)) as address:
        for line in ACTING:
            words = [str(tmp_path / "word") if word == "PASSWORD" else word for word in shlex.split(line)]
            remote = call("--server", address, *words, env={"FENCEPOST_TOKEN": secret})
            beside = call(*words, ledger=other)
            assert _plain(remote) == _plain(beside), line
    runs = [call("runs", "--json", ledger=each).json for each in (url, other)]
    assert [(each["id"], each["job"], each["state"]) for each in runs[0]] == [
        (each["id"], each["job"], each["state"]) for each in runs[1]
    ]
    acts = [[each["act"] for each in call("audit", "list", "--json", ledger=u).json] for u in (url, other)]
    assert [each for each in acts[0] if each in acts[1]][:5] == acts[1][:5]
    assert {each["requested_by"][:6] for each in runs[0] if each["requested_by"]} == {"token:"}
    by_server.close()


def _plain(done: Done) -> tuple[int, str, str]:
    """What was printed, without times, and without who acted."""

    def plain(text: str) -> str:
        text = re.sub(r"20\d\d-\d\d-\d\d[T ][0-9:.]+Z?", "TIME", text)
        text = re.sub(r"/[ab]\.db", "/DB", text)
        text = re.sub(r'"version": "[0-9a-f]{16}"', "VERSION", text)  # of a pause: it contains both
        text = re.sub(r"token:[0-9a-f]{16}|\broot\b|ann by \w+", "WHO", text)
        return re.sub(r"[ ─━]+", " ", text)

    return done.returncode, plain(done.stdout), plain(done.stderr)


def test_trigger_waits_for_the_end_and_says_how_it_went(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/wait.db"
    app = shop(url)
    with app.running(), served(web(app)) as address:
        env = {"FENCEPOST_TOKEN": token_for(url, "operator", "add", "boom")}
        done = call("--server", address, "trigger", "add", "-p", "a=3", "--wait", "--json", env=env)
        assert (done.returncode, json.loads(done.stdout)["result"]) == (0, 5)
        failed = call("--server", address, "trigger", "boom", "--wait", env=env)
        assert failed.returncode == 3
        assert "RuntimeError" in failed.stdout
        assert call("--server", address, "trigger", "settle", env=env).returncode == 1
        assert "may not" in call("--server", address, "audit", "list", env=env).stderr
    app.close()


REFUSED = {
    "without a token": (["--server", "http://127.0.0.1:1", "runs"], "needs an API token"),
    "with a fencing token": (["--server", "http://127.0.0.1:1", "runs"], "begins with fp_"),
    "http to elsewhere": (["--server", "http://example.org", "runs"], "in clear text"),
    "no URL": (["--server", "example.org", "runs"], "https://HOST:PORT"),
    "a user in it": (["--server", "https://a:b@example.org", "runs"], "without user"),
    "both": (["--server", "http://127.0.0.1:1", "runs", "--ledger", "sqlite:///x.db"], "not both"),
    "run": (["--server", "http://127.0.0.1:1", "run", "x:app"], "does not work with a server"),
    "migrate": (["--server", "http://127.0.0.1:1", "migrate"], "does not work with a server"),
    "exec": (["--server", "http://127.0.0.1:1", "exec", "x"], "does not work with a server"),
    "who acts": (["--server", "http://127.0.0.1:1", "cancel", "1", "--by", "eve"], "--by does not work"),
    "nobody there": (["--server", "http://127.0.0.1:1", "runs"], "did not answer"),
    "effects": (["--server", "http://127.0.0.1:1", "jobs", "rename", "a", "b", "--effects", "own"], "--effects does"),
    "a token file that is not there": (["--token-file", "/no", "--server", "http://127.0.0.1:1", "runs"], "/no cannot"),
    "with the path of REST": (["--server", "http://127.0.0.1:1/x/api/v1/", "runs"], "/api/v1: http://127.0.0.1:1/x\n"),
    "the server after it": (
        ["runs", "--server", "http://127.0.0.1:1"],
        "before the command: fencepost --server URL",
    ),
    "its token after it": (["jobs", "rename", "--token-file=x"], "--server URL --token-file FILE jobs rename"),
    "in clear text after it": (["runs", "--insecure-http"], "fencepost --insecure-http --server URL runs"),
    "the ledger before it": (
        ["--ledger", "sqlite:///x.db", "runs"],
        "after the command: fencepost COMMAND",
    ),
    "no server": (["--token-file", "/no", "runs"], "without --server"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_with_exit_code_2(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, sentence = REFUSED[case]
    monkeypatch.setattr("fencepost.cli.remote.connection._PAUSE_S", 0.0)
    token = {"without a token": "", "with a fencing token": "1042"}.get(case, "fp_x")
    done = call(*words, env={"FENCEPOST_TOKEN": token})
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_environment_names_the_server_and_a_ledger_counts_more(ledger: str, asked: Ask, tmp_path: Path) -> None:
    env = {"FENCEPOST_SERVER": "http://127.0.0.1:1", "FENCEPOST_TOKEN": "fp_x"}
    assert call("runs", "--json", "--limit", "1", "--ledger", ledger, env=env).returncode == 0
    (tmp_path / "token").write_text("fp_wrong\n")
    wrong = call("--token-file", str(tmp_path / "token"), "runs", env=env)
    assert "did not answer" in wrong.stderr


def test_token_that_is_not_known_is_told_to_be_refused_and_not_why(ledger: str, asked: Ask, tmp_path: Path) -> None:
    app = App(ledger)
    access = Access(app.ledger, ROOT)
    revoked = access.add_api_token("gone", "viewer", expires_in="1d")
    access.revoke_api_token(revoked.id)
    with served(web(app)) as address:
        told = {
            call("--server", address, "runs", env={"FENCEPOST_TOKEN": each}).stderr
            for each in ("fp_unknown", revoked.secret)
        }
    app.close()
    assert told == {"fencepost: This API token is refused: it is not known, has expired or was revoked.\n"}


def test_redirection_is_not_followed_and_the_token_goes_nowhere_else() -> None:
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65_536))
                connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = call("--server", address, "jobs", env={"FENCEPOST_TOKEN": "fp_x"})
        thread.join(30)
    assert done.returncode == 2
    assert "redirection" in done.stderr
    assert len(seen) == 1


def test_act_whose_answer_was_lost_is_sent_again_under_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.cli.remote.connection import ServerConnection

    url = f"sqlite:///{tmp_path}/lost.db"
    app = shop(url)
    publish(app)
    sent, lost = ServerConnection._sent, []

    def losing(self: ServerConnection, method: str, *rest: object) -> object:
        answer = sent(self, method, *rest)
        if method == "POST" and not lost:
            lost.append(answer)
            raise ConnectionResetError
        return answer

    monkeypatch.setattr(ServerConnection, "_sent", losing)
    monkeypatch.setattr("fencepost.cli.remote.connection._PAUSE_S", 0.0)
    with served(web(app)) as address:
        env = {"FENCEPOST_TOKEN": token_for(url)}
        made = call("--server", address, "trigger", "add", "-p", "a=1", "--json", env=env).json
    assert made == {"run": 1, "job": "add", "new": True, "paused": None}
    assert len(app.operations.runs()) == len(lost) == 1
    app.close()


def test_who_requests_by_a_server_what_no_node_can_take_is_told_so(tmp_path: Path) -> None:
    app = shop(url := f"sqlite:///{tmp_path}/idle.db")
    publish(app)
    with served(web(app)) as address:
        env = {"FENCEPOST_TOKEN": token_for(url)}
        told = call("--server", address, "trigger", "add", "-p", "a=1", env=env).stderr
    assert told.startswith("fencepost: it waits: there is no living node to run it: fencepost run APP starts one")
    app.close()


def test_now_acknowledge_and_retry_with_other_parameters_work_alike(ledger: str, asked: Ask) -> None:
    beside = lambda *words: call(*words, "--ledger", ledger)  # noqa: E731
    for ask, by in ((beside, "--by ann"), (asked, "")):
        first = ask("now", "--json")
        assert first.returncode == 3
        [row] = [each for each in json.loads(first.stdout) if each["what"] == "given-up" and each["job"] == "boom"]
        named = (row["what"], row["id"])
        assert ask("acknowledge", *named, "--note", "known", "--for", "1h", *by.split()).returncode == 0
        known = ask("now")
        assert re.search(r"known to \S+ until .*: run \d+ of boom was given up .*\(known\)", known.stdout), known.stdout
        assert ask("unacknowledge", *named, *by.split()).returncode == 0
        assert ask("unacknowledge", *named, *by.split()).returncode == 1
    rows = [[(each["what"], each["id"]) for each in json.loads(ask("now", "--json").stdout)] for ask in (beside, asked)]
    assert rows[0] == rows[1]
    boom = row["run_id"]
    words = ("retry", str(boom), "-p", "word=other", "--reason", "the wrong one", "--json")
    made = asked(*words).json
    assert beside("show", str(made["run"]), "--json").json["params"] == {"word": "other"}
    assert beside(*words).returncode == 4
    assert asked("retry", str(boom), "-p", "nothing=1").returncode == 2


@pytest.mark.parametrize(
    ("remote", "beside"),
    [
        (RemoteOperations, Operations),
        (RemoteAccess, Access),
        (RemoteLocks, LockOperations),
        (RemoteConcerns, Concerns),
    ],
)
def test_methods_take_what_those_beside_the_ledger_take(remote: type, beside: type) -> None:
    for name, method in vars(remote).items():
        if name.startswith("_"):
            continue
        known = inspect.signature(getattr(beside, name)).parameters
        for each in inspect.signature(method).parameters.values():
            assert (each.kind, each.default) == (known[each.name].kind, known[each.name].default), (name, each)


def test_a_token_for_one_job_is_not_told_that_others_are_not_there(ledger: str) -> None:
    secret = token_for(ledger, "operator", "settle")
    app = App(ledger)
    with served(web(app)) as address:
        env = {"FENCEPOST_TOKEN": secret}
        for words in (("trigger",), ("why",), ("jobs",)):
            hidden = call("--server", address, *words, "boom", env=env)
            assert hidden.returncode == 1
            assert "there is no job 'boom' that you may see; there are: settle" in hidden.stderr
            absent = call("--server", address, *words, "blank", env=env)
            assert absent.stderr == hidden.stderr.replace("boom", "blank")
    app.close()


def test_an_address_that_is_no_server_s_says_what_to_give(ledger: str, asked: Ask) -> None:
    app = App(ledger)
    with served(web(app)) as address:
        env = {"FENCEPOST_TOKEN": token_for(ledger)}
        wrong = call("--server", f"{address}/wrong", "runs", env=env)
        secured = call("--server", address.replace("http://", "https://"), "runs", env=env)
    app.close()
    assert (wrong.returncode, secured.returncode) == (2, 2)
    assert f"{address}/wrong does not answer as a Fencepost server" in wrong.stderr
    assert wrong.stderr.rstrip().endswith(": give the address of the pages, with --prefix if it has one")
    assert secured.stderr.rstrip().endswith(": it probably speaks http; on the loopback, write http://")


def test_without_a_token_it_says_who_makes_one() -> None:
    done = call("--server", "http://127.0.0.1:1", "runs", env={"FENCEPOST_TOKEN": ""})
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("; an admin makes one: fencepost api-tokens add NAME ROLE --expires-in 30d")
