import pytest

from antiphon.protocol import context
from antiphon.protocol.items import (
    Compaction,
    Content,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    SummaryText,
)
from antiphon.protocol.tools import FunctionTool


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ü", 1), ("abcdü", 2), ("日本語", 3), ("🎵", 1)]
)
def test_four_ascii_characters_or_one_other_are_a_token(text: str, count: int):
    assert context.estimate_text(text) == count


def user_content(*content: Content) -> Message:
    """Make a message of the user's."""
    return Message(role="user", content=list(content))


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (user_content(), 4),
        (user_content(InputText(text="abcd"), OutputText(text="abcd")), 6),
        (user_content(InputImage(image_url="u")), 769),
        (user_content(InputVideo(video_url="u")), 5004),
        (user_content(InputFile(file_url="u")), 769),
        (user_content(InputFile(file_data="x" * 80)), 779),
        (FunctionCall(call_id="c", name="abcd", arguments="abcdefgh"), 7),
        (FunctionCallOutput(call_id="c", output="abcd"), 5),
        (FunctionCallOutput(call_id="c", output=[InputText(text="abcd")]), 5),
        (Reasoning(summary=[SummaryText(text="abcd")]), 5),
        (Reasoning(content=[ReasoningText(text="abcdefgh")]), 6),
        (Compaction(encrypted_content="abcd"), 16),
    ],
    ids=lambda value: value.type if isinstance(value, Message) else None,
)
def test_every_item_has_an_estimate(item: Item, count: int):
    assert context.estimate_item(item) == count


def test_a_prompt_is_its_instructions_its_tools_and_its_items():
    items: list[Item] = [user_content(InputText(text="abcd"))]
    tools = [FunctionTool(name="f")]
    assert context.estimate_items(items * 3) == 15
    assert context.estimate_prompt(None, [], items) == 5
    assert context.estimate_prompt("abcd", [], items) == 6
    assert context.estimate_prompt("abcd", tools, items) > context.estimate_prompt("abcd", [], items)
