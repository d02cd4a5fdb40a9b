"""Gemini's responses, decoded by the adapter and by Google's SDK from the same bytes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.adapters.google.decode import FAILURE_REASONS, REASONS
from antiphon.protocol import parts
from antiphon.protocol.items import FunctionCall, LogProb, Message, OutputText, Reasoning, TopLogProb, UrlCitation
from antiphon.protocol.response import Response
from antiphon.protocol.struct import to_builtins
from tests.adapters.google.builders import GEMINI_3, GOOGLE, PIXEL, decode_chunks, google_client, types
from tests.adapters.run_adapter import decode_parts, decode_response, encode_request
from tests.adapters.scenes import NAMES, Summary
from tests.adapters.scenes.google import SCENES, answer, sse_stream, thought
from tests.scripted_upstream import json_answer, sse_answer


def items_without_ids(response: Response) -> list[dict]:
    """Return the output without its ids."""
    return [
        {name: value for name, value in to_builtins(item).items() if name not in ("id", "call_id")}  # type: ignore[attr-defined]
        for item in response.output
    ]


def test_every_scene_exists():
    assert list(SCENES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_chunks_decodes_like_the_stream(name: str):
    scene = SCENES[name]
    chunks = [json.loads(line[6:]) for line in scene.stream.split(b"\r\n\r\n") if line]
    array = json.dumps(chunks, indent=2).encode()
    expected = items_without_ids(decode_response(encode_request(GOOGLE, **scene.request), scene.stream))
    assert items_without_ids(decode_response(encode_request(GOOGLE, **scene.request), array, stream=False)) == expected
    assert items_without_ids(decode_response(encode_request(GOOGLE, **scene.request), array, pieces=7)) == expected


@pytest.mark.parametrize("name", NAMES)
def test_the_raw_finish_reason_is_kept(name: str):
    scene = SCENES[name]
    ends = [
        part
        for part in decode_parts(encode_request(GOOGLE, stream=True, **scene.request), scene.stream)
        if isinstance(part, parts.Finish)
    ]
    reason = REASONS[scene.expected.stop]
    assert ends == [parts.Finish("tool_calls" if scene.expected.calls else reason, scene.expected.stop)]


def summarize_sdk_message(answers: list[types.GenerateContentResponse]) -> Summary:
    """Summarize the responses of the SDK."""
    pieces = [
        piece
        for answer in answers
        for candidate in answer.candidates or []
        for piece in (candidate.content and candidate.content.parts) or []
    ]
    usage, last = answers[-1].usage_metadata, (answers[-1].candidates or [])[0]
    assert usage
    assert last.finish_reason
    thoughts = usage.thoughts_token_count or 0
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(REASONS[last.finish_reason.value])
    return Summary(
        text="".join(piece.text or "" for piece in pieces if not piece.thought),
        calls=[(made.id or "", made.name or "", made.args or {}) for piece in pieces if (made := piece.function_call)],
        reasoning="".join(piece.text or "" for piece in pieces if piece.thought),
        input_tokens=usage.prompt_token_count or 0,
        output_tokens=(usage.candidates_token_count or 0) + thoughts,
        cached_tokens=usage.cached_content_token_count or 0,
        reasoning_tokens=thoughts,
        status="incomplete" if reason else "completed",
        reason=reason,
        stop=last.finish_reason.value,
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_reads_the_same_responses(name: str):
    scene = SCENES[name]
    body = json.loads(scene.whole)
    with google_client(sse_answer(scene.stream), json_answer(body)) as (google, _):
        chunks = list(google.generate_content_stream(model=GEMINI_3, contents="Hello"))
        assert summarize_sdk_message(chunks) == scene.expected
        answer = google.generate_content(model=GEMINI_3, contents="Hello")
        assert summarize_sdk_message([answer]) == scene.expected


@given(st.sampled_from(NAMES), st.lists(st.integers(1, 60), max_size=60))
def test_any_chunking_gives_the_same_parts(name: str, cuts: list[int]):
    scene = SCENES[name]
    one = decode_parts(encode_request(GOOGLE, stream=True, **scene.request), scene.stream)
    other = encode_request(GOOGLE, stream=True, **scene.request).decoder
    parts: list = []
    start = 0
    for size in cuts:
        parts += other.feed(scene.stream[start : start + size])
        start += size
    parts += other.feed(scene.stream[start:])
    assert parts + other.close() == one


@pytest.mark.parametrize(("reason", "ours"), REASONS.items())
def test_every_finish_reason_is_mapped(reason: str, ours: str):
    decoded = decode_parts(encode_request(GOOGLE, stream=True), sse_stream(answer({"text": "a"}, finish=reason)))
    assert decoded == [parts.Text("a"), parts.Finish(ours, reason)]  # type: ignore[arg-type]


def test_an_unknown_finish_reason_means_stop():
    decoded = decode_parts(encode_request(GOOGLE, stream=True), sse_stream(answer({"text": "a"}, finish="BORED")))
    assert decoded == [parts.Text("a"), parts.Finish("stop", "BORED")]


def test_a_finish_reason_in_every_chunk_is_reported_once():
    decoded = decode_parts(
        encode_request(GOOGLE, stream=True),
        sse_stream(answer({"text": "a"}, finish="STOP"), answer({"text": "b"}, finish="STOP")),
    )
    assert decoded == [parts.Text("a"), parts.Finish("stop", "STOP"), parts.Text("b")]


@pytest.mark.parametrize("reason", FAILURE_REASONS)
def test_failure_reasons_fail_the_response(reason: str):
    response = decode_chunks(answer({"text": "So "}, finish=reason))
    assert response.status == "failed"
    assert response.error
    assert (response.error.code, response.error.message) == (reason, f"google: {FAILURE_REASONS[reason]}")
    response = decode_chunks(answer(finish=reason, finishMessage="Malformed: x(1"))
    assert response.error
    assert response.error.message == "google: Malformed: x(1"


def test_a_blocked_prompt_is_a_content_filter_with_googles_message():
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
    response = decode_chunks(blocked)
    assert (response.status, response.output) == ("incomplete", [])
    assert response.incomplete_details
    assert response.incomplete_details.reason == "content_filter"
    blocked["promptFeedback"]["blockReasonMessage"] = "Not here."
    response = decode_chunks(blocked)
    [message] = response.output
    assert isinstance(message, Message)
    assert message.text == "Not here."
    assert to_builtins(message.content[0]) == {"type": "refusal", "refusal": "Not here."}


def test_tokens_of_tool_results_count_as_input():
    response = decode_chunks(
        answer(
            {"text": "a"},
            finish="STOP",
            usage={
                "promptTokenCount": 10,
                "toolUsePromptTokenCount": 5,
                "candidatesTokenCount": 3,
                "thoughtsTokenCount": 4,
            },
        )
    )
    assert response.usage
    assert (response.usage.input_tokens, response.usage.output_tokens) == (15, 7)


def test_grounding_becomes_annotations_with_character_offsets():
    text = "Größe \U0001f305 zählt. Ja."
    start = len("Größe \U0001f305 ".encode())
    grounding = {
        "webSearchQueries": ["x"],
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}, {"web": {"uri": "https://b.example"}}],
        "groundingSupports": [
            {
                "segment": {"startIndex": start, "endIndex": start + 7, "text": "zählt."},
                "groundingChunkIndices": [0, 1, 9],
            },
            {"segment": {"startIndex": 1, "endIndex": 2, "text": "Ja."}, "groundingChunkIndices": [1]},
        ],
    }
    chunks = (
        answer({"text": text[:10]}),
        answer({"text": text[10:], "thoughtSignature": "c2ln"}, groundingMetadata=grounding),
        answer(finish="STOP", groundingMetadata=grounding),
    )
    message, reasoning = decode_chunks(*chunks).output
    assert isinstance(message, Message)
    assert isinstance(reasoning, Reasoning)
    [part] = message.content
    assert isinstance(part, OutputText)
    assert part.annotations == [
        UrlCitation(url="https://a.example", title="A", start_index=8, end_index=14),
        UrlCitation(url="https://b.example", title="", start_index=8, end_index=14),
        UrlCitation(url="https://b.example", title="", start_index=15, end_index=18),
    ]


@pytest.mark.parametrize("name", ["citations", "citationSources"])
def test_citations_become_annotations(name: str):
    citation = {"startIndex": 0, "endIndex": 2, "uri": "https://a.example", "title": "A"}
    response = decode_chunks(
        answer({"text": "Ja."}, finish="STOP", citationMetadata={name: [citation, {"endIndex": 1}]})
    )
    [message] = response.output
    assert isinstance(message, Message)
    [part] = message.content
    assert isinstance(part, OutputText)
    assert part.annotations == [UrlCitation(url="https://a.example", title="A", start_index=0, end_index=2)]


def test_logprobs_are_attached_to_their_text():
    result = {
        "chosenCandidates": [{"token": "J", "logProbability": -0.5}],
        "topCandidates": [{"candidates": [{"token": "J", "logProbability": -0.5}, {"token": "ä"}]}],
    }
    chunk = answer(thought("Hm."), {"text": "J"}, finish="STOP", logprobsResult=result)
    decoded = decode_parts(encode_request(GOOGLE, stream=True), sse_stream(chunk))
    top = [TopLogProb(token="J", logprob=-0.5, bytes=[74]), TopLogProb(token="ä", logprob=0.0, bytes=[195, 164])]
    score = LogProb(token="J", logprob=-0.5, bytes=[74], top_logprobs=top)
    assert decoded[1] == parts.Text("J", logprobs=[score])


def test_images_are_left_out_with_one_warning():
    image = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    response = decode_chunks(answer({"text": "See: "}, image, image), answer({"text": "it"}, finish="STOP"))
    assert response.output_text == "See: it"
    assert [warning.code for warning in response.warnings or []] == ["unsupported_output"]


def test_unknown_fields_and_parts_and_other_candidates_are_ignored():
    chunk = answer({"text": "a", "news": 1}, {"hologram": {}}, {}, finish="STOP", mood="good")
    chunk["candidates"].append({"index": 1, "content": {"parts": [{"text": "b"}]}})
    response = decode_chunks({"news": True}, {"candidates": []}, chunk)
    assert (response.status, response.output_text) == ("completed", "a")


def test_increments_of_a_call_are_ignored():
    chunks = (
        answer({"functionCall": {"name": "weather", "willContinue": True}}),
        answer({"functionCall": {"partialArgs": [{"jsonPath": "$.city"}], "willContinue": True}}),
        answer({"functionCall": {}}, finish="STOP"),
    )
    [item] = decode_chunks(*chunks).output
    assert isinstance(item, FunctionCall)
    assert (item.name, item.arguments) == ("weather", "{}")
