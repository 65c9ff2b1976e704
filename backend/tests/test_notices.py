"""Who waits for a notice hears of its own, and of the end of all."""

from weir.kit.notices import Notices


def test_each_waits_for_its_own() -> None:
    notices = Notices()
    with notices.about("a") as first, notices.about("a") as second, notices.about("b") as other:
        notices.arrived("a")
        assert first.is_set()
        assert second.is_set()
        assert not other.is_set()
    # Nobody waits, and nothing is kept of who did.
    notices.arrived("a")
    assert not notices._waiting


def test_who_waits_looks_again_when_listening_begins_and_ends() -> None:
    """What happened while nobody listened was said to nobody."""
    notices = Notices()
    assert not notices.are_heard
    with notices.about("a") as waiting:
        with notices.listening():
            assert notices.are_heard
            assert waiting.is_set()
            waiting.clear()
        assert waiting.is_set()
    assert not notices.are_heard


def test_of_two_that_listen_one_is_enough() -> None:
    notices = Notices()
    with notices.listening():
        with notices.listening():
            pass
        assert notices.are_heard
