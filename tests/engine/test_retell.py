"""A response told once more is a legal stream of itself."""

from hypothesis import given, settings

from antiphon.core.fold import fold
from antiphon.core.judge import judge
from antiphon.core.parts import Part
from antiphon.engine.retell import retell
from tests.core.making import begun, ending, stream
from tests.core.strategies import part_lists


@settings(deadline=None, max_examples=300)
@given(part_lists())
def test_any_response_can_be_told_again(parts: list[Part]) -> None:
    response = ending(stream(*parts))
    events = retell(response)
    assert judge(events) == []
    assert fold(events) == response
    assert ending(events) == response


def test_a_background_response_can_be_told_again() -> None:
    response = ending(stream(response=begun(background=True)))
    assert judge(retell(response)) == []
    assert ending(retell(response)) == response
