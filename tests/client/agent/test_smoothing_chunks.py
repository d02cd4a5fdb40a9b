import subprocess
import sys
from itertools import accumulate, pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.client.agent.smoothing import ChunkStrategy, create_chunker
from antiphon.protocol.errors import RequestError

STRATEGIES: list[ChunkStrategy] = ["character", "word", "sentence"]
TRICKY = (
    "\r\n `~ab_1.,'?!…。！？)」*\"-é中あพ\u0301\u0e33\u200d\ufe0f\u1100\u1161\u0600"
    "👩👧🏽🇫🇷\u0915\u0937\u094d\ud83c\udfb5"
)
TEXT = st.text(st.sampled_from(TRICKY) | st.characters(), max_size=40)
PLACES = st.lists(st.integers(0, 50))


def cut(text: str, places: list[int]) -> list[str]:
    """Split a text at some positions."""
    ends = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


def chunks(strategy: ChunkStrategy, *deltas: str) -> list[str]:
    """Feed deltas and flush."""
    chunker = create_chunker(strategy)
    return [chunk for delta in deltas for chunk in chunker.feed(delta)] + chunker.flush()


def steps(strategy: ChunkStrategy, *deltas: str) -> list[list[str]]:
    """Return the chunks of each delta and of the flush."""
    chunker = create_chunker(strategy)
    return [*(chunker.feed(delta) for delta in deltas), chunker.flush()]


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(TEXT, PLACES)
def test_chunks_join_to_the_text_and_do_not_depend_on_the_deltas(strategy: ChunkStrategy, text: str, places: list[int]):
    whole = chunks(strategy, text)
    assert "".join(whole) == text
    assert "" not in whole
    assert chunks(strategy, *cut(text, places)) == whole


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(TEXT)
def test_no_chunk_ends_inside_a_grapheme(strategy: ChunkStrategy, text: str):
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    assert set(accumulate(map(len, chunks(strategy, text)))) <= ends


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(
    before=st.sampled_from(["", "Look:\n", "a. b\n\n", "- ", "> ", "x\r\n    "]),
    mark=st.sampled_from(["```", "````", "~~~", "~~~~~"]),
    info=st.text(st.sampled_from("py jsé中.?!+-{}=👩"), max_size=70),
    after=st.sampled_from(["", "\n", "\r\nx", "\nprint(1)\n```\nDone."]),
    places=PLACES,
)
def test_a_fence_marker_is_never_split(
    strategy: ChunkStrategy, before: str, mark: str, info: str, after: str, places: list[int]
):
    found = chunks(strategy, *cut(before + mark + info + after, places))
    assert "".join(found) == before + mark + info + after
    start, end = len(before), len(before + mark + info)
    assert not set(accumulate(map(len, found))) & set(range(start + 1, end))


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_nothing_is_lost_over_a_flush(strategy: ChunkStrategy, texts: list[str]):
    chunker = create_chunker(strategy)
    for text in texts:
        assert "".join(chunker.feed(text) + chunker.flush()) == text
    assert chunker.flush() == []


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("unit", ["ab ", "🇫🇷", "\u0301", "`"])
def test_a_hundred_thousand_single_characters_take_linear_time(strategy: ChunkStrategy, unit: str):
    # At quadratic cost this would take minutes, and the test's time would be up.
    text = (unit * 100_000)[:100_000]
    assert "".join(chunks(strategy, *text)) == text


def test_characters_are_graphemes_and_the_last_is_buffered():
    assert steps("character", "Hello", ", wor", "ld👩", "\u200d👧!") == [
        ["H", "e", "l", "l"],
        ["o", ",", " ", "w", "o"],
        ["r", "l", "d"],
        ["👩\u200d👧"],
        ["!"],
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, world! How", ["Hello, ", "world! ", "How"]),
        ("  one two three", ["  ", "one ", "two ", "three"]),
        ("It's 3.14 (ok), Dr.", ["It's ", "3.14 (", "ok), ", "Dr."]),
        ("a_b test-case", ["a_b ", "test-", "case"]),
        ("See https://example.com/a.", ["See ", "https://", "example.com/", "a."]),
        ("one.\n\n- two", ["one.\n\n- ", "two"]),
        ("a b\r\nc", ["a ", "b\r\n", "c"]),
        ("Hi 👩‍👧 🇫🇷🇩🇪 end", ["Hi 👩‍👧 🇫🇷🇩🇪 ", "end"]),
        ("你好。世界！", ["你", "好。", "世", "界！"]),
        ("GPT用于中文", ["GPT", "用", "于", "中", "文"]),
        ("これはテスト", ["こ", "れ", "は", "テ", "ス", "ト"]),
        ("ที่นี่ ok", ["ที่", "นี่ ", "ok"]),
        ("안녕 세상", ["안녕 ", "세상"]),
        ("नमस्ते दुनिया", ["नमस्ते ", "दुनिया"]),
        ("مرحبا بالعالم", ["مرحبا ", "بالعالم"]),
        ('```py\nprint("hi")\n```\nDone.', ["```py\n", 'print("', 'hi")\n', "```\n", "Done."]),
        ("use ```py here", ["use ", "```py ", "here"]),
        ("x```py\ny", ["x", "```py\n", "y"]),
        ("~~~ a b c\nd", ["~~~ a b c\n", "d"]),
        ("", []),
    ],
)
def test_a_word_includes_the_text_up_to_the_next(text: str, words: list[str]):
    assert chunks("word", text) == words


def test_a_word_is_complete_when_the_next_starts():
    assert steps("word", "Hello", ", wor", "ld! How", " are") == [[], ["Hello, "], ["world! "], ["How "], ["are"]]


def test_a_long_word_is_split():
    assert chunks("word", "x" * 120 + " y") == ["x" * 50, "x" * 50, "x" * 20 + " ", "y"]


def test_a_long_word_is_split_between_graphemes():
    family = "👩‍👩‍👧‍👦"
    assert chunks("word", family * 10) == [family * 7, family * 3]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("First one. Second one! Third", ["First one. ", "Second one! ", "Third"]),
        ("Wait... what?! Yes.", ["Wait... ", "what?! ", "Yes."]),
        ('He said "no." Then left.', ['He said "no." ', "Then left."]),
        ('It ended. "Why?" (So.) *Ok.* Go', ["It ended. ", '"Why?" ', "(So.) ", "*Ok.* ", "Go"]),
        ("Pi is 3.14 at a.b/c?d=e. Yes", ["Pi is 3.14 at a.b/c?d=e. ", "Yes"]),
        ("A.  B", ["A.  ", "B"]),
        ("Two. * one", ["Two. ", "* one"]),
        ("Line one.\nLine two.\n\n- a\n- b", ["Line one.\n", "Line two.\n", "\n", "- a\n", "- b"]),
        ("a\r\nb", ["a\r\n", "b"]),
        ("你好。世界！今天？！是的", ["你好。", "世界！", "今天？！", "是的"]),
        ("他说：「好。」然后", ["他说：「好。」", "然后"]),
        ("Look: ```py\nx. y", ["Look: ", "```py\n", "x. ", "y"]),
        ("```a. b\nc", ["```a. b\n", "c"]),
        ("", []),
    ],
)
def test_a_sentence_ends_at_its_mark_or_its_line(text: str, sentences: list[str]):
    assert chunks("sentence", text) == sentences


def test_a_mark_ends_a_sentence_only_before_a_space():
    assert steps("sentence", "It is 3.", "14. ", "Ok") == [[], [], ["It is 3.14. "], ["Ok"]]


def test_a_long_sentence_is_split():
    assert chunks("sentence", "x" * 1000) == ["x" * 400, "x" * 400, "x" * 200]


def test_a_long_sentence_is_split_at_a_space():
    words = "word " * 100
    assert chunks("sentence", words) == ["word " * 81, "word " * 19]


def by_comma(text: str) -> list[str]:
    """Split after every comma."""
    return regex.findall(r"[^,]*,|[^,]+", text)


@settings(deadline=None)
@given(TEXT, PLACES)
def test_custom_chunks_join_to_the_text(text: str, places: list[int]):
    chunker = create_chunker(by_comma)
    found = [chunk for delta in cut(text, places) for chunk in chunker.feed(delta)]
    assert "".join(found + chunker.flush()) == text


def test_a_custom_function_gets_its_last_chunk_again():
    chunker = create_chunker(by_comma)
    assert [chunker.feed("a,b"), chunker.feed("c,de"), chunker.flush()] == [[], ["a,", "bc,"], ["de"]]


@pytest.mark.parametrize(
    "useless",
    [
        pytest.param(lambda text: [][0], id="raises"),
        pytest.param(lambda text: text.split(","), id="loses text"),
        pytest.param(lambda text: [text, text], id="invents text"),
        pytest.param(lambda text: None, id="returns nothing"),
        pytest.param(lambda text: [1, 2], id="returns numbers"),
    ],
)
def test_a_broken_custom_function_leaves_the_text_unchanged(useless):
    chunker = create_chunker(useless)
    assert [chunker.feed("a,b,c"), chunker.feed("d,e"), chunker.flush()] == [["a,b,"], ["cd,"], ["e"]]


def test_a_custom_function_that_never_splits_is_called_rarely():
    asked: list[int] = []

    def never(text: str) -> list[str]:
        asked.append(len(text))
        return [text]

    chunker = create_chunker(never)
    for character in "x" * 20_000:
        assert chunker.feed(character) == []
    assert chunker.flush() == ["x" * 20_000]
    assert sum(asked) < 25 * 20_000


def test_an_unknown_strategy_is_rejected():
    with pytest.raises(RequestError) as refused:
        create_chunker("paragraph")  # pyright: ignore[reportArgumentType]
    assert str(refused.value) == (
        "Unknown chunking strategy 'paragraph'. Use 'character', 'word', 'sentence', or a function."
    )


def test_simple_text_does_not_load_regex():
    script = (
        "import sys\n"
        "from antiphon.client.agent.smoothing import create_chunker\n"
        "create_chunker('word').feed('Hello — “world”, ça va? Привет, 你好。これは ok')\n"
        "print('regex' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert found.stdout.split() == [b"False"]
