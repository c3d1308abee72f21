"""A bound method that does not keep its object alive."""

from fencepost.core.weak_method import BoundWeakly


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def call(self) -> int:
        self.calls += 1
        return self.calls


def test_it_gives_the_method_while_the_object_lives_and_then_nothing() -> None:
    ended: list[str] = []
    counted = Counted()
    reference = BoundWeakly(counted.call, lambda: ended.append("gone"))
    method = reference()
    assert method is not None
    assert (method(), counted.calls, ended) == (1, 1, [])
    del method, counted
    assert (reference(), ended) == (None, ["gone"])
