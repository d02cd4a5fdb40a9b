"""A response told once more is a legal stream of itself."""

from hypothesis import given, settings

from antiphon.core.fold import fold
from antiphon.core.judge import find_violations
from antiphon.core.parts import Part
from antiphon.engine.retell import replay_response
from tests.core.making import make_response, final_response, synthesize
from tests.core.strategies import part_lists


@settings(deadline=None, max_examples=300)
@given(part_lists())
def test_any_response_can_be_told_again(parts: list[Part]) -> None:
    response = final_response(synthesize(*parts))
    events = replay_response(response)
    assert find_violations(events) == []
    assert fold(events) == response
    assert final_response(events) == response


def test_a_background_response_can_be_told_again() -> None:
    response = final_response(synthesize(response=make_response(background=True)))
    assert find_violations(replay_response(response)) == []
    assert final_response(replay_response(response)) == response
