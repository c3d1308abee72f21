from fencepost.core.keyed import note_key, watching


def test_a_key_counts_for_the_transaction_it_was_used_in() -> None:
    outer_tx, inner_tx = object(), object()
    with watching(outer_tx) as outer:
        with watching(inner_tx) as inner:
            note_key(outer_tx)
            assert (outer.has_key, inner.has_key) == (True, False)
            note_key(inner_tx)
        assert inner.has_key


def test_a_key_under_another_face_of_a_transaction_counts_for_the_innermost() -> None:
    with watching(object()) as outer, watching(object()) as inner:
        note_key(object())
    assert (outer.has_key, inner.has_key) == (False, True)


def test_a_key_outside_of_any_transaction_counts_for_none() -> None:
    note_key(object())
    with watching(object()) as watch:
        pass
    note_key(object())
    assert not watch.has_key
