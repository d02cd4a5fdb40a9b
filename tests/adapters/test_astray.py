"""Where an address leads that leads elsewhere."""

import pytest

from antiphon.adapters.astray import redirect_target

BASE = "http://here.example/v1"
ASKED = f"{BASE}/responses"


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("https://there.example/v2/responses", "https://there.example/v2"),
        ("https://me:secret@there.example/v2/responses?key=secret#x", "https://there.example/v2"),
        ("wss://there.example:8000/v2/responses", "https://there.example:8000/v2"),
        ("ws://there.example/responses", "http://there.example"),
        ("//there.example/v1/responses", "http://there.example/v1"),
        ("/v2/responses", "http://here.example/v2"),
        ("/login", "http://here.example/login"),
        ("http://[", None),
        ("mailto:a@b.example", None),
        ("", None),
    ],
)
def test_a_redirect_says_which_base_url_would_lead_there(location: str, place: str | None) -> None:
    headers = {"location": location}
    assert redirect_target(308, headers, ASKED, BASE) == place
    assert redirect_target(302, headers, f"{ASKED}?a=b", BASE) == place


@pytest.mark.parametrize("status", [200, 201, 404, 503])
def test_only_a_redirect_says_that_somebody_has_moved(status: int) -> None:
    assert redirect_target(status, {"location": ASKED}, ASKED, BASE) is None


def test_a_redirect_without_a_place_leads_nowhere() -> None:
    assert redirect_target(304, {}, ASKED, BASE) is None
