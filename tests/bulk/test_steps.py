"""Several steps: in order, once each; hooks, deciders, and calls that are made once."""

from __future__ import annotations

from typing import Any

from fencepost import Skip
from tests.bulk.orders import Shop, again, kind, on_every_database, place, played, result_of, settling, shop

__all__ = ["kind", "place", "shop"]


def noting(noted: list[str], name: str, **more: Any) -> type:
    """A step that notes what is called."""
    base = settling(lambda order: (noted.append(f"{name}:{order.id}"), order)[1])
    hooks = {
        "name": name,
        "before": lambda _, run: noted.append(f"before {name}"),
        "after": lambda _, run, result: noted.append(f"after {name}: {result.counts.read}"),
        "write": lambda _, tx, items: None,
    }
    return type(name, (base,), {**hooks, **more})


class TestSeveral:
    @on_every_database
    def test_steps_are_done_in_order_and_those_that_are_done_are_skipped_on_restart(self, shop: Shop) -> None:
        shop.fill(range(1, 3))
        noted: list[str] = []
        trouble = [ValueError("not yet")]

        def work(_: Any, run: Any) -> None:
            noted.append("work")
            if trouble:
                raise trouble.pop()

        class Nightly:
            steps = (
                noting(noted, "one"),
                type("two", (), {"work": work}),
                noting(noted, "three"),
            )

            def before(self, run: Any) -> None:
                noted.append("before all")

            def after(self, run: Any, results: Any) -> None:
                noted.append(f"after {', '.join(results)}; {[r.was_done_before for r in results.values()]}")

        row = played(shop, shop.bulk(Nightly, retries=0))
        assert row.state == "dead"
        first = ["before all", "before one", "one:1", "one:2", "after one: 2", "work"]
        assert noted == first
        row = again(shop, row)
        assert row.state == "succeeded"
        assert noted[len(first) :] == [
            "before all",
            "work",
            "before three",
            "three:1",
            "three:2",
            "after three: 2",
            "after one, two, three; [True, False, False]",
        ]
        assert result_of(row)["steps"]["one"]["read"] == 2
        assert result_of(row)["read"] == 4

    def test_a_step_has_options_of_its_own(self, shop: Shop) -> None:
        shop.fill(range(1, 31))
        sizes: dict[str, list[int]] = {"small": [], "usual": []}

        def step(name: str, **more: Any) -> type:
            return settling(name=name, write=lambda _, tx, items: sizes[name].append(len(items)), **more)

        class Nightly:
            chunk = 15
            steps = (
                step("small", chunk=5),
                step("usual"),
            )

        assert played(shop, shop.app.bulk()(Nightly)).state == "succeeded"
        assert sizes == {"small": [5] * 6, "usual": [15] * 2}


class TestDeciders:
    def test_a_decider_leads_from_step_to_step_also_on_restart(self, shop: Shop) -> None:
        shop.fill(range(1, 4))
        noted: list[str] = []
        trouble = [ValueError("not yet")]

        def broken(_: Any, run: Any) -> None:
            if trouble:
                raise trouble.pop()
            noted.append("repaired")

        class Nightly:
            steps = (
                noting(noted, "look"),
                noting(noted, "never"),
                type("repair", (), {"work": broken}),
            )

            def decide(self, step: str, result: Any) -> str | None:
                noted.append(f"decide {step}: {result.counts.read}, {result.was_done_before}")
                return "repair" if step == "look" and result.counts.read == 3 else None

        row = played(shop, shop.bulk(Nightly, retries=0))
        assert row.state == "dead"
        row = again(shop, row)
        assert row.state == "succeeded"
        decided = [each for each in noted if not each.startswith(("look:", "before", "after"))]
        assert decided == ["decide look: 3, False", "decide look: 3, True", "repaired", "decide repair: 0, False"]
        row = again(shop, row)
        assert row.state == "skipped"

    def test_one_that_leads_in_a_circle_or_nowhere_gives_the_run_up(self, shop: Shop) -> None:
        shop.fill([1])

        class Circle:
            steps = (noting([], "one"),)

            def decide(self, step: str, result: Any) -> str:
                return "one"

        class Nowhere(Circle):
            def decide(self, step: str, result: Any) -> str:
                return "onne"

        row = played(shop, shop.bulk(Circle))
        assert (row.state, row.attempts) == ("dead", 1)
        assert "a second time" in (row.error or "")
        row = played(shop, shop.bulk(Nowhere))
        assert (row.state, row.attempts) == ("dead", 1)
        assert "has no step 'onne'; did you mean 'one'?" in (row.error or "")


class TestHooks:
    def test_what_is_done_but_for_its_last_hook_is_not_complete(self, shop: Shop) -> None:
        shop.fill([1])
        noted: list[str] = []
        trouble = [ValueError("the mail server is away")]

        class Nightly:
            steps = (noting(noted, "one"),)

            def after(self, run: Any, results: Any) -> None:
                if trouble:
                    raise trouble.pop()
                noted.append("mailed")

        row = played(shop, shop.bulk(Nightly, retries=0))
        assert row.state == "dead"
        assert again(shop, row).state == "succeeded"
        assert noted.count("one:1") == 1
        assert noted[-1] == "mailed"

    def test_skip_in_a_hook_is_about_the_run(self, shop: Shop) -> None:
        shop.fill([1])
        closed = [True]

        class Settle(settling()):  # type: ignore[misc]
            def before(self, run: Any) -> None:
                if closed:
                    raise Skip("a holiday")

        row = played(shop, shop.bulk(Settle))
        assert (row.state, row.why) == ("skipped", "a holiday")
        assert shop.settled() == []
        closed.clear()
        assert again(shop, row).state == "succeeded"
        assert shop.settled() == [1]
