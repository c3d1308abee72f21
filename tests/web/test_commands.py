"""*Copy as command*: what a page offers for a shell shows the same as the page."""

import html
import json
import re
import shlex
from datetime import datetime, timedelta
from itertools import pairwise
from urllib.parse import quote

import pytest
import typer.main

from fencepost.cli.app import app as tree
from fencepost.web.finding import QUALIFIERS
from tests.access.scene import set_run
from tests.cli.inside import call
from tests.web.test_pages import targets

FINDS = {
    "job": ["job:settle", "settle"],
    "state": ["state:dead", "state:dead,running"],
    "waits": ["waits:person", "waits:time", "waits:person state:dead"],
    "schedule": ["schedule:settle"],
    "queue": ["queue:slow"],
    "node": ["node:n1"],
    "by": ["by:bob"],
    "key": ["'key:a b'"],
    "retry-of": ["retry-of:1"],
    "since": ["since:2026-01-01T00:00Z", "since:1h"],
    "until": ["until:2026-01-01T00:00Z"],
    "id": ["id:1", "1", "id:1 id:2", "id:1 job:settle"],
    "param.NAME": ["param.account:8", "param.account:8 by:bob"],
}

FIND_ALL = ("job:settle", "settle", "since:2026-01-01T00:00Z")


def commands_of(text):
    """Return the command lines that a page offers, as words."""
    found = re.findall(r"<pre data-copy>(.*?)</pre>", text, re.DOTALL)
    return [shlex.split(html.unescape(each)) for each in found]


@pytest.fixture
def runs_of_each_kind(app, dead_run):
    """Runs of which each filter finds some, and not all."""
    made = [app.operations.trigger("settle", {"account": n}, by="bob", again=True).run_id for n in range(8, 11)]
    set_run(app, made[0], state="waiting", waits_for="person", queue="slow", node="n1")
    set_run(app, made[1], state="waiting", waits_for="time", schedule="settle", exclusive_key="a b", created_at=1)
    set_run(app, made[2], state="running", retry_of=dead_run)


def test_every_word_of_the_find_box_is_tried_here():
    assert set(FINDS) == set(QUALIFIERS)


def test_command_of_the_page_of_runs_finds_the_same_runs(app, browser, runs_of_each_kind, ledger_url):
    everything = len(app.operations.runs())
    for find in [each for finds in FINDS.values() for each in finds]:
        page = browser.get(f"/runs?q={quote(find)}").text
        shown = [int(each) for each in re.findall(r'id="run-(\d+)"', page)]
        assert 0 < len(shown) < everything or find in FIND_ALL, find
        command, curl = commands_of(page)
        found = call(*command[1:], "--json", ledger=ledger_url).json
        assert [each["id"] for each in (found if isinstance(found, list) else [found])] == shown, find
        assert _exported(browser, curl) == shown, find


def _exported(browser, curl):
    return [each["id"] for each in json.loads(browser.get(curl[-1].partition("127.0.0.1")[2]).text)]


def test_older_runs_are_the_same_by_the_command_and_by_curl(app, browser, runs_of_each_kind, ledger_url):
    command, curl = commands_of(browser.get("/runs?before=3").text)
    assert [each["id"] for each in call(*command[1:], "--json", ledger=ledger_url).json] == [2, 1]
    assert _exported(browser, curl) == [2, 1]


@pytest.mark.parametrize("target", ["/jobs?tz=Asia/Seoul", "/jobs/settle", "/jobs/settle?figures=35d"])
def test_figures_are_of_the_same_time_by_the_command_and_by_curl(browser, ledger_url, target):
    [(command, curl)] = [each for each in pairwise(commands_of(browser.get(target).text)) if each[0][1] == "figures"]
    shown = call(*command[1:], "--json", ledger=ledger_url).json
    answer = browser.get(curl[-1].partition("127.0.0.1")[2])
    assert answer.status == 200, answer.text
    first = (shown if isinstance(shown, list) else [shown])[0]
    since = [datetime.fromisoformat(each["since_at"]) for each in (first, json.loads(answer.text)["items"][0])]
    assert abs(since[0] - since[1]) <= timedelta(hours=1)  # figures are by hour, and one may just have ended


def test_number_alone_is_that_run(browser, dead_run):
    assert commands_of(browser.get("/runs?q=1").text)[0] == ["fencepost", "show", "1"]
    assert commands_of(browser.get("/runs?q=id:1").text)[0] == ["fencepost", "show", "1"]


def test_each_command_on_a_page_can_be_typed(browser, dead_run):
    pages = [browser.get(target) for target in targets(dead_run)]
    assert [each.status for each in pages] == [200] * len(pages)
    commands = [words for each in pages for words in commands_of(each.text) if words[0] == "fencepost"]
    assert len(commands) > 20
    for words in commands:
        _parse(words[1:])


def _parse(words):
    """Read a command line as `fencepost` does, and do nothing: wrong usage raises."""
    command = typer.main.get_command(tree)
    context = command.make_context("fencepost", list(words))
    while hasattr(command, "resolve_command") and context.args + context._protected_args:
        name, command, words = command.resolve_command(context, context._protected_args + context.args)
        context = command.make_context(name, words, parent=context)
