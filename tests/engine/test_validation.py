"""Messages about requests that are incomplete or misspelt, and images without a usable source."""

import pytest

from antiphon.engine.validation import check_images, check_request, warn_of_unused_fields
from antiphon.protocol.errors import RequestError
from antiphon.protocol.items import FunctionCallOutput, InputImage, Item, Message
from antiphon.protocol.request import Request
from antiphon.protocol.struct import decode


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (
            {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]},
            "input",
            "You sent 'messages'. Send them to POST /v1/chat/completions, or rename them to 'input'.",
        ),
        ({"model": "demo", "inptu": "Hi"}, "input", "A request needs 'input'. You sent 'inptu'. Did you mean 'input'?"),
        ({"modle": "demo", "input": "Hi"}, "model", "A request needs 'model'. You sent 'modle'. Did you mean 'model'?"),
        ({"model": "demo"}, "input", "A request needs 'model' and 'input'. GET /v1/models lists the models."),
    ],
)
def test_a_missing_field_is_reported_with_what_was_sent_instead(body: object, param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_request(decode(Request, body))
    payload = caught.value.payload
    assert (payload.message, payload.param, payload.code) == (message, param, "missing_required_parameter")


def test_misspelt_fields_get_a_suggestion() -> None:
    request = decode(
        Request, {"temprature": 1, "reasoning": {"efort": "low"}, "text": {"verbositi": "low", "wheels": 4}}
    )
    assert [(warning.param, warning.message.partition("server.")[2]) for warning in warn_of_unused_fields(request)] == [
        ("temprature", " Did you mean 'temperature'?"),
        ("text.verbositi", " Did you mean 'verbosity'?"),
        ("text.wheels", ""),
        ("reasoning.efort", " Did you mean 'effort'?"),
    ]


def test_only_the_first_unknown_fields_get_a_suggestion() -> None:
    warnings = warn_of_unused_fields(decode(Request, {f"temperature{number}": 1 for number in range(100)}))
    assert ["Did you mean" in warning.message for warning in warnings] == [True] * 20 + [False] * 80


def image(url: str | None, **extra: object) -> InputImage:
    return decode(InputImage, {"type": "input_image", "image_url": url, **extra})


GOOD = [
    image("https://example.com/a.png"),
    image("HTTP://example.com"),
    image("gs://bucket/a.png"),
    image("s3://bucket/a.png"),
    image("data:image/png;base64,iVBORw0KGgo="),
    image(None, file_id="file_1"),
]


@pytest.mark.parametrize(
    "url", [None, "", "file:///etc/passwd", "cat.png", "/tmp/cat.png", "data:nonsense", "https://", "cat"]
)
def test_an_image_without_a_usable_source_is_rejected(url: str | None) -> None:
    items: list[Item] = [
        Message(role="user", content=[*GOOD]),
        FunctionCallOutput(call_id="c", output=[*GOOD, image(url)]),
    ]
    check_images(items[:1])
    for name, position, found in (("input", 1, items), ("items", 0, items[1:])):
        with pytest.raises(RequestError) as caught:
            check_images(found, name)
        payload = caught.value.payload
        assert (payload.param, payload.code) == (f"{name}[{position}].output[6].image_url", "invalid_value")
        assert payload.message.endswith(". Send an http(s) URL, or 'data:image/png;base64,…'.")
