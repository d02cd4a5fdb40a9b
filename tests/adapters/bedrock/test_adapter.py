"""Bedrock's addresses, regions and model list."""

import json

import pytest

from antiphon.adapters.bedrock.adapter import Bedrock
from antiphon.transport.request import AwsSignature
from tests.adapters.bedrock.builders import BEDROCK, HELLO, aws_client, aws_session, build_answer
from tests.adapters.run_adapter import encode_request, make_adapter
from tests.adapters.scenes.bedrock import SCENES
from tests.scripted_upstream import scripted_upstream


def test_streams_have_their_own_url_and_arns_are_encoded():
    arn = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-3-7"
    with scripted_upstream(build_answer(SCENES["text"].stream)) as provider:
        with aws_client(provider) as client:
            list(client.converse_stream(modelId=arn, messages=HELLO)["stream"])
        path = provider.requests[0].path
    request = encode_request(make_adapter(Bedrock, base_url=f"{provider.url}/"), upstream_model=arn, stream=True)
    assert request.sent.url == provider.url + path
    assert request.sent.method == "POST"
    assert request.sent.headers == {}


@pytest.mark.parametrize(
    ("options", "url", "region"),
    [
        ({}, "https://bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ({"region": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com", "eu-west-1"),
        ({"region": "cn-north-1"}, "https://bedrock-runtime.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        (
            {"base_url": "https://bedrock-runtime.us-west-2.amazonaws.com/"},
            "https://bedrock-runtime.us-west-2.amazonaws.com",
            "us-west-2",
        ),
        ({"base_url": "http://10.0.0.1:80/aws", "region": "eu-west-1"}, "http://10.0.0.1:80/aws", "eu-west-1"),
    ],
)
def test_the_region_sets_the_url_and_the_reverse(options: dict, url: str, region: str):
    adapter = make_adapter(Bedrock, profile="work", **options)
    assert isinstance(adapter, Bedrock)
    assert adapter.base_url == url
    assert adapter.credential() == AwsSignature("bedrock", region, "work")
    assert Bedrock.key_env == ("AWS_BEARER_TOKEN_BEDROCK",)


def test_models_are_listed_like_the_sdk_does():
    body = {"modelSummaries": [{"modelId": "a.b"}, {"modelArn": "x"}, {"modelId": "c.d"}]}
    with scripted_upstream(build_answer(json.dumps(body).encode(), "application/json")) as provider:
        client = aws_session().client("bedrock", endpoint_url=provider.url)
        client.list_foundation_models(byOutputModality="TEXT")
        client.close()
        received = provider.requests[0]
    sent = BEDROCK.models_request()
    assert sent
    assert sent.method == received.method
    assert sent.url == "https://bedrock.eu-west-1.amazonaws.com" + received.path
    assert BEDROCK.decode_models(body) == ["a.b", "c.d"]
    assert make_adapter(Bedrock, base_url="http://10.0.0.1").models_request() is None
