"""``fencepost serve`` as a process: the link in the terminal alone, and addresses that it refuses to listen on."""

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest

from fencepost.cli.main import main


def ask(address, path, form=None, headers=()):
    body = None if form is None else urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(address + path, body, dict(headers))

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    try:
        with urllib.request.build_opener(Stay).open(request, timeout=60) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


@contextmanager
def ended(process):
    """Leave no server behind, also if the test fails."""
    try:
        yield
    finally:
        process.kill()


def test_link_lets_in_and_is_nowhere_but_on_the_terminal(app, ledger_url, dead_run):
    command = [sys.executable, "-m", "fencepost", "serve", "--ledger", ledger_url, "--port", "0"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        ended(process),
    ):
        line = process.stdout.readline()
        address, once = re.search(r"(http://127\.0\.0\.1:\d+)/enter\?once=([0-9a-f]{64})", line).groups()
        ours = [("Sec-Fetch-Site", "same-origin")]
        assert ask(address, "/runs")[0] == 303
        status, _, page = ask(address, f"/enter?once={once}")
        assert status == 200
        assert once in page
        status, headers, _ = ask(address, "/enter", {"once": once}, ours)
        assert status == 303
        assert "server" not in {name.lower() for name in headers}
        cookie = headers["set-cookie"].partition(";")[0]
        status, _, page = ask(address, f"/runs/{dead_run}", headers=[("Cookie", cookie)])
        assert status == 200
        assert "boom" in page
        assert ask(address, "/runs", headers=[("X-Forwarded-For", "10.0.0.1"), ("Host", "evil.example")])[0] == 421
        process.send_signal(signal.SIGTERM)
        left, errors = process.communicate(timeout=60)
    assert once not in left + errors
    assert f"the pages are at {address}/" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("more", [[], ["--behind-tls-proxy"], ["--tls-cert", "c.pem", "--tls-key", "k.pem"]])
def test_public_address_without_tls_or_accounts_is_refused_with_the_ways_out(app, ledger_url, capsys, more):
    assert main(["serve", "--ledger", ledger_url, "--host", "0.0.0.0", *more]) == 2
    said = capsys.readouterr().err
    assert all(
        word in said
        for word in (
            "ssh -L",
            "(4)",
            "--tls-cert and --tls-key",
            "--behind-tls-proxy",
            "--proxy",
            "fencepost users add",
        )
    )
    assert "***" not in said


def test_advice_names_what_was_typed(app, ledger_url, capsys):
    assert main(["serve", "--ledger", ledger_url, "--host", "0.0.0.0", "--port", "8999"]) == 2
    assert "ssh -L 8999:127.0.0.1:8999 HOST" in capsys.readouterr().err
    assert main(["serve", "--ledger", ledger_url, "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "ssh -L 8600:127.0.0.1:8600 HOST" in capsys.readouterr().err
    assert main(["serve", "--ledger", ledger_url, "--port", "0", "--allowed-host", "https://x/"]) == 2
    assert "'https://x/' is not the name of a host" in capsys.readouterr().err


def test_port_that_is_taken_is_refused_with_the_way_out(app, ledger_url, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["serve", "--ledger", ledger_url, "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err


def test_proxy_without_a_secret_and_half_of_a_certificate_are_refused(app, ledger_url, capsys, monkeypatch):
    monkeypatch.delenv("FENCEPOST_PROXY_SECRET", raising=False)
    assert main(["serve", "--ledger", ledger_url, "--proxy", "10.0.0.1"]) == 2
    assert "FENCEPOST_PROXY_SECRET" in capsys.readouterr().err
    assert main(["serve", "--ledger", ledger_url, "--tls-cert", "c.pem", "--tls-key", "k.pem"]) == 2
    assert "cannot read --tls-cert c.pem: No such file" in capsys.readouterr().err
    assert main(["serve", "--ledger", ledger_url, "--tls-cert", "c.pem"]) == 2
