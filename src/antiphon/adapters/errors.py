"""Errors as providers tell them: found, named, and without their secrets."""

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from antiphon.adapters.json_access import as_array, as_object, as_string
from antiphon.protocol.errors import HTTP_STATUS, ErrorPayload, UpstreamError
from antiphon.protocol.surrogates import repair_surrogates


class ErrorInfo(Struct, frozen=True):
    """An error as the provider told it, as far as it did."""

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None


TRUNCATED = ErrorInfo("the answer was cut short.", "model_error", "upstream_cut")

TYPE_BY_STATUS = {
    400: "invalid_request",
    401: "authentication_error",
    403: "permission_denied",
    404: "not_found",
    413: "invalid_request",
    422: "invalid_request",
    429: "too_many_requests",
}
STATUS_BY_CODE = {
    **HTTP_STATUS,
    "invalid_request_error": 400,
    "BadRequestError": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "model_error": 502,
    "service_unavailable": 503,
    "timeout": 504,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""What an error inside an answer would have been before it, by its code or its type."""

VAGUE_CODES = frozenset(
    """BadRequestError INVALID_ARGUMENT ValidationException bad_request invalid_argument
    invalid_request invalid_request_error""".split()
)
"""Codes that say no more than that a request was refused."""

UNQUOTED_PREFIX = r"(?is)\A(?:[^'\"`{\[=]|\w'\w|`\w{1,64}`){0,200}?"
"""The words with which an error begins, before it quotes anybody.

No two alternatives match the same text: what follows may quote a prompt, and an ambiguous
repetition takes exponential time on it.
"""

CODE_PATTERNS = {
    code: re.compile(f"{UNQUOTED_PREFIX}(?:{words})")
    for code, words in {
        "context_length_exceeded": (
            r"(?:input|prompt) is too long|maximum (?:context|prompt) length"
            r"|exceeds? (?:the )?(?:\w+ )?context (?:size|window|length|limit)"
            r"|exceeds the maximum number of tokens|number of input tokens exceeds"
        ),
        "insufficient_quota": r"credit balance is too low",
        "invalid_api_key": r"incorrect api key",
        "model_not_found": (
            r"model identifier is invalid|on-demand throughput isn.t supported"
            r"|(?:not a valid|invalid) model (?:id|name)\b|model not exist"
        ),
    }.items()
}
"""How providers say in words what others, and the specification, have a code for."""

RETRYABLE_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
QUOTA_CODES = frozenset({"insufficient_quota", "billing_error"})
"""Codes of a 429 that waiting does not mend."""

MIN_KEY_LENGTH = 8
"""How long a key must be to be looked for in what somebody says; shorter ones are words."""

MAX_NAME_LENGTH = 200
"""How long a type, a code or a param may be."""

REDACTED = "[redacted]"

REDACTION_MARGIN = 64
"""How many characters beyond its limit are searched for secrets."""

MIN_SECRET_LENGTH = 16
"""The length from which every pattern in SECRETS matches what it is for, even if its end is cut."""

SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|key)-[\w*.-]{6,}|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|(?i:bearer )[\w.~+/-]{8,}=*|\beyJ[\w.-]{8,}"
    r"|(?i:(?:x-amz-security-token|(?:secret_?access_?key|session_?token)|(?:x-)?(?:goog-)?api-key)['\"]?\s*[:=]\s*['\"]?[^\s'\",;)]{8,})"
    r"|(?i:authorization['\"]?\s*[:=]\s*['\"]?(?:aws4-[^\n]*|(?:\w+ )?[^\s'\",;)]{8,}))"
)
"""Keys as their makers write them, and headers that hold one: AWS quotes what it was to sign."""


def unreadable_error(error: Exception) -> ErrorInfo:
    """Tell that something came which cannot be read."""
    reason = str(error)[:200]
    return ErrorInfo(
        f"sent something that cannot be read: {reason}", "model_error", "upstream_invalid"
    )


def infer_code(error: ErrorInfo) -> ErrorInfo:
    """Give an error the code that its own words stand for, unless it has one that says something.

    A number or a sentence is none. What an error quotes may be the caller's, or the model's.
    """
    code = error.code or ""
    if not (code in VAGUE_CODES or code.isdecimal() or " " in code or not code):
        return error
    meant = (code for code, words in CODE_PATTERNS.items() if words.match(error.message))
    return replace(error, code=next(meant, error.code))


def redact(message: str, limit: int = 2000) -> str:
    """Return a provider's words without what looks like a key in them."""
    # The text may quote a prompt of any length, so it is cut before it is searched.
    start = message[: limit + REDACTION_MARGIN]
    text = SECRET_PATTERN.sub(REDACTED, repair_surrogates(start))
    if len(start) < len(message) and not text.endswith(REDACTED):
        text = text[:-MIN_SECRET_LENGTH]  # perhaps the start of a key, too short to be recognised
    return text[:limit]


def redact_key(text: str, key: str) -> str:
    """Return somebody's words without the key that they were shown, and may have repeated."""
    return text.replace(key, REDACTED) if len(key) >= MIN_KEY_LENGTH else text


def client_status(status: int) -> int:
    """Return the status that the client is told: one of an error, and one that all know."""
    if status == 529:
        return 503
    return status if 400 <= status < 600 else 502


def error_type(status: int) -> str:
    """Return our type for an error whose provider names none."""
    return TYPE_BY_STATUS.get(status, "model_error")


def infer_status(error: ErrorInfo | ErrorPayload, default: int = 502) -> int:
    """Return the status that an error inside an answer would have had before it."""
    code = error.code or ""
    if code.isdecimal() and len(code) == 3 and "400" <= code < "600":
        return int(code)
    return STATUS_BY_CODE.get(code) or STATUS_BY_CODE.get(error.type or "") or default


def is_retryable(status: int, headers: Mapping[str, str], error: ErrorInfo) -> bool:
    """Tell whether the same request may succeed a little later."""
    said = headers.get("x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    return status in RETRYABLE_STATUSES and not QUOTA_CODES & {error.code, error.type}


RETRY_AFTER = re.compile(
    r"\d{1,9}(\.\d{1,9})?|\w{3}, \d\d \w{3} \d{4} [\d:]{8} [\w+-]{3,5}", re.ASCII
)
"""How long, in seconds or until when."""


def retry_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what a provider says about trying again, for the client, if it can be read."""
    said = {name: headers.get(name, "") for name in ("retry-after", "retry-after-ms")}
    return {name: value for name, value in said.items() if RETRY_AFTER.fullmatch(value)}


def parse_error(value: object) -> ErrorInfo:
    """Find an error in the shapes that most servers use: nested, flat, or a lone string."""
    first = next(iter(as_array(value)), value)
    fields = as_object(first)
    inner = fields.get("error")
    if isinstance(inner, str):
        return ErrorInfo(inner)
    fields = as_object(inner) or fields
    return ErrorInfo(
        find_message(fields or first),
        type=_name_or_none(fields.get("type")),
        code=_name_or_none(fields.get("code")),
        param=_name_or_none(fields.get("param")),
    )


MESSAGE_FIELDS = ("message", "Message", "msg", "detail", "description", "error", "errors")
"""Where servers put what an error says, the best first."""

MAX_ERROR_DEPTH = 6
MAX_REASONS = 5


def find_message(value: object, depth: int = MAX_ERROR_DEPTH) -> str:
    """Return what an error says, wherever in it the words are; of many reasons, the first few."""
    if isinstance(value, str) or not depth:
        return as_string(value)
    if reasons := as_array(value):
        told = [find_message(reason, depth - 1) for reason in reasons[:MAX_REASONS]]
        return "; ".join(filter(None, told))
    fields = as_object(value)
    told = (find_message(fields[name], depth - 1) for name in MESSAGE_FIELDS if fields.get(name))
    words = next(filter(None, told), "")
    place = [
        str(step) for step in as_array(fields.get("loc")) if step != "body"
    ]  # as pydantic says
    return ": ".join(filter(None, [".".join(place), words])) if words else ""


def plain_text_body(headers: Mapping[str, str], body: bytes) -> str:
    """Return a body that is mere words; web pages and broken JSON are none."""
    text = body.decode(errors="replace").strip()
    plain = headers.get("content-type", "").lower().startswith("text/plain")
    return text if plain and not text.startswith(("<", "{", "[")) else ""


def _name_or_none(value: object) -> str | None:
    return str(value) if isinstance(value, str | int) and value not in ("", True, False) else None


INVALID_CODE = "upstream_invalid"

HTTP_SCHEMES = {"ws": "http", "wss": "https"}
"""What a base URL begins with where a WebSocket's address begins otherwise."""

MAX_URL_LENGTH = 300
"""How much of an address is told."""


def redirect_target(status: int, headers: Mapping[str, str], url: str, base_url: str) -> str | None:
    """Return where somebody says that they are: a base URL if the rest is as it was asked for."""
    location = headers.get("location")
    if not (location and 300 <= status < 400):
        return None
    try:
        there = urlsplit(urljoin(url, location))
        host = there.netloc.rpartition("@")[2]
    except ValueError:
        return None
    path = url.partition("?")[0].removeprefix(base_url)
    scheme = HTTP_SCHEMES.get(there.scheme, there.scheme)
    return f"{scheme}://{host}{there.path.removesuffix(path)}" if host else None


def redirect_advice(url: str) -> str:
    """Say where somebody has moved, and what to do."""
    return f"it has moved to {redact(url, MAX_URL_LENGTH)}. Its base_url should lead there."


def redirect_error(provider: str, status: int, url: str) -> UpstreamError:
    """Make the error for an address that leads to another one."""
    return UpstreamError(
        f"{provider}: answered {status}: {redirect_advice(url)}", code=INVALID_CODE
    )


def html_page_error(provider: str) -> UpstreamError:
    """Make the error for an address that leads to something for people."""
    message = f"{provider}: answered with a web page. Its base_url probably leads elsewhere."
    return UpstreamError(message, code=INVALID_CODE)
