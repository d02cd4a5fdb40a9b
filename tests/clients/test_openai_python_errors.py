"""The real openai-python and our errors and failed streams."""

import pytest
from openai import (
    APIError,
    APIStatusError,
    BadRequestError,
    DefaultHttpxClient,
    InternalServerError,
    NotFoundError,
    OpenAI,
)

from tests.clients.openai_events import BEGIN_EVENTS, text_events


def test_a_failing_model_is_a_server_error(client: OpenAI) -> None:
    with pytest.raises(InternalServerError) as caught:
        client.responses.create(model="demo", input="FAIL")
    assert (caught.value.code, caught.value.type) == ("server_error", "server_error")
    assert caught.value.request_id
    assert "Traceback" not in caught.value.response.text


def test_a_failing_model_is_run_once(openai: OpenAI) -> None:
    requests: list[object] = []
    with DefaultHttpxClient(event_hooks={"request": [requests.append]}) as http:
        retrying = openai.with_options(max_retries=2, http_client=http)
        with pytest.raises(InternalServerError) as caught:
            retrying.responses.create(model="demo", input="FAIL")
    assert len(requests) == 1
    assert isinstance(caught.value.body, dict)
    response = openai.responses.retrieve(caught.value.body["antiphon:response_id"])
    assert (response.status, response.output_text) == ("failed", "Hello from Antiphon's demo")


def test_a_failing_stream_ends_with_response_failed_at_the_openai_door(openai: OpenAI) -> None:
    with openai.responses.create(model="demo", input="FAIL", stream=True) as stream:
        events = list(stream)
    types = [event.type for event in events]
    assert types == [*BEGIN_EVENTS, *text_events(4), "response.failed"]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
    assert last.response.error
    assert last.response.error.code == "server_error"
    assert last.response.output_text == "Hello from Antiphon's demo"


def test_stream_shows_a_failure_as_an_event_and_has_no_final_response(openai: OpenAI) -> None:
    with openai.responses.stream(model="demo", input="FAIL") as stream:
        *_, last = stream
        with pytest.raises(RuntimeError, match="Didn't receive a"):
            stream.get_final_response()
    assert last.type == "response.failed"


def test_a_failing_stream_raises_at_the_specification_door(spec: OpenAI) -> None:
    # The specification puts an `error` event before `response.failed`; the client raises it.
    with (
        spec.responses.create(model="demo", input="FAIL", stream=True) as raw,
        pytest.raises(APIError, match="failed while answering") as first,
    ):
        list(raw)
    with (
        spec.responses.stream(model="demo", input="FAIL") as stream,
        pytest.raises(APIError, match="failed while answering") as second,
    ):
        stream.until_done()
    assert first.value.code == second.value.code == "server_error"


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_a_bad_request_at_the_openai_door(openai: OpenAI, stream: bool) -> None:
    with pytest.raises(BadRequestError, match="'gpt-0' does not exist") as caught:
        openai.responses.create(model="gpt-0", input="Hello!", stream=stream)
    error = caught.value
    assert (error.code, error.param, error.type) == ("model_not_found", "model", "invalid_request_error")
    assert error.request_id
    assert error.response.json()["detail"] == "model not found"


@pytest.mark.parametrize("stream", [False, True])
def test_an_unknown_model_is_not_found_at_the_specification_door(spec: OpenAI, stream: bool) -> None:
    with pytest.raises(NotFoundError, match="'gpt-0' does not exist") as caught:
        spec.responses.create(model="gpt-0", input="Hello!", stream=stream)
    error = caught.value
    assert (error.code, error.param, error.type) == ("model_not_found", "model", "not_found")
    assert error.request_id
    assert "detail" not in error.response.json()


@pytest.mark.parametrize("stream", [False, True])
def test_an_invalid_field_is_named(client: OpenAI, stream: bool) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(model="demo", input="Hello!", temperature=3, stream=stream)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")
    with pytest.raises(BadRequestError) as caught:
        client.responses.create(model="demo", input="Hello!", extra_body={"temperature": "hot"}, stream=stream)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")


def test_an_output_without_its_call_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="call_nobody_made"):
        client.responses.create(
            model="demo", input=[{"type": "function_call_output", "call_id": "call_nobody_made", "output": "42"}]
        )


def test_a_body_that_is_not_json_is_an_unsupported_media_type(client: OpenAI) -> None:
    with pytest.raises(APIStatusError) as caught:
        client.responses.create(model="demo", input="Hello!", extra_headers={"Content-Type": "text/plain"})
    assert (caught.value.status_code, caught.value.code) == (415, "unsupported_media_type")
