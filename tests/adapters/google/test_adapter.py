"""Google's addresses, credentials and model list."""

import pytest
from google.oauth2.credentials import Credentials

from antiphon.adapters.google.adapter import Google
from antiphon.protocol.errors import RequestError
from antiphon.transport import request as wire
from tests.adapters.google.builders import GEMINI_3, GOOGLE, genai, types
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes.google import SCENES
from tests.scripted_upstream import scripted_upstream, sse_answer


def test_the_request_equals_the_sdks_on_vertex():
    with scripted_upstream(sse_answer(SCENES["text"].stream)) as provider:
        vertex = genai.Client(
            vertexai=True,
            project="p",
            location="l",
            credentials=Credentials(token="t"),
            http_options=types.HttpOptions(base_url=provider.url),
        )
        with vertex as google:
            list(google.models.generate_content_stream(model=GEMINI_3, contents="Hello"))
        [received] = provider.requests
        ours = make_adapter(Google, project="p", location="l", base_url=provider.url)
        sent = encode_request(ours, upstream_model=GEMINI_3, stream=True).sent
        assert sent.url == provider.url + received.path
        assert sent.body == received.json
        assert received.headers["authorization"] == "Bearer t"


def test_complete_responses_have_their_own_url():
    assert encode_request(GOOGLE, upstream_model="models/a b").sent == wire.Upstream(
        url="https://generativelanguage.googleapis.com/v1beta/models/a%20b:generateContent",
        body={"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    )


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({}, "https://generativelanguage.googleapis.com/v1beta/models/m"),
        ({"api_version": "v1"}, "https://generativelanguage.googleapis.com/v1/models/m"),
        ({"base_url": "http://here:1/"}, "http://here:1/v1beta/models/m"),
        ({"base_url": "http://here:1/v1alpha"}, "http://here:1/v1alpha/models/m"),
        (
            {"project": "p", "location": "europe-west4"},
            "https://europe-west4-aiplatform.googleapis.com/v1beta1/projects/p/locations/"
            "europe-west4/publishers/google/models/m",
        ),
        (
            {"project": "p"},
            "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/publishers/google/models/m",
        ),
        (
            {"project": "p", "location": "eu"},
            "https://aiplatform.eu.rep.googleapis.com/v1beta1/projects/p/locations/eu/publishers/google/models/m",
        ),
        (
            {"project": "p", "location": "l", "base_url": "http://here:1"},
            "http://here:1/v1beta1/projects/p/locations/l/publishers/google/models/m",
        ),
    ],
)
def test_the_url_follows_the_configuration(options: dict, address: str):
    sent = encode_request(make_adapter(Google, **options), upstream_model="m").sent
    assert sent.url == f"{address}:generateContent"


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("m@001", "projects/p/locations/global/publishers/google/models/m@001"),
        ("meta/m", "projects/p/locations/global/publishers/meta/models/m"),
        ("endpoints/1", "projects/p/locations/global/endpoints/1"),
        ("projects/p/locations/l/endpoints/1", "projects/p/locations/l/endpoints/1"),
    ],
)
def test_a_model_on_vertex_may_be_given_by_its_path(model: str, path: str):
    sent = encode_request(make_adapter(Google, project="p"), upstream_model=model).sent
    assert sent.url == f"https://aiplatform.googleapis.com/v1beta1/{path}:generateContent"


def test_a_model_of_another_project_is_rejected():
    with pytest.raises(RequestError) as refusal:
        encode_request(make_adapter(Google, project="p"), upstream_model="projects/q/locations/l/endpoints/1")
    assert refusal.value.payload.code == "model_not_found"


def test_a_model_name_with_dots_is_rejected():
    with pytest.raises(RequestError) as refusal:
        encode_request(GOOGLE, upstream_model="../../files")
    assert refusal.value.payload.param == "model"
    sent = encode_request(GOOGLE, upstream_model="m:x?key=1#").sent
    assert sent.url.endswith("/models/m%3Ax%3Fkey%3D1%23:generateContent")


def test_gemini_gets_the_key_and_vertex_googles_credentials():
    assert GOOGLE.credential() == wire.Key("x-goog-api-key", "")
    assert make_adapter(Google, project="p").credential() == wire.GoogleToken()


def test_models_are_listed_without_their_paths():
    listing = GOOGLE.models_request()
    assert listing
    assert listing.url == ("https://generativelanguage.googleapis.com/v1beta/models?pageSize=1000")
    vertex = make_adapter(Google, project="p", location="l").models_request()
    assert vertex
    assert vertex.url == ("https://l-aiplatform.googleapis.com/v1beta1/publishers/google/models")
    assert GOOGLE.decode_models({"models": [{"name": "models/gemini-3"}, {}]}) == ["gemini-3"]
    assert GOOGLE.decode_models({"publisherModels": [{"name": "publishers/google/models/g"}]}) == ["g"]
