"""Errors of providers: parsed from any shape, given a code and a status, and redacted.

An error message of a provider may quote the prompt, the model or our own headers. So secrets are
replaced before a client sees it, and nothing is inferred from the quoted part.
"""

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.errors import HTTP_STATUS, ErrorPayload, UpstreamError
from antiphon.protocol.struct import as_array, as_object, as_string
from antiphon.protocol.surrogates import repair_surrogates


class ErrorInfo(Struct, frozen=True):
    """An error as the provider reported it; fields that it left out are empty."""

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None


TRUNCATED = ErrorInfo("the answer was cut short.", "model_error", "upstream_cut")

TYPE_BY_STATUS = {
    **dict.fromkeys((400, 413, 422), "invalid_request"),
    401: "authentication_error",
    403: "permission_denied",
    404: "not_found",
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
"""The HTTP status of an error that comes inside an answer, by its code or its type."""

VAGUE_CODES = frozenset(
    """BadRequestError INVALID_ARGUMENT ValidationException bad_request invalid_argument
    invalid_request invalid_request_error""".split()
)
"""Codes that say only that the request was rejected."""

UNQUOTED_PREFIX = r"(?is)\A(?:[^'\"`{\[=]|\w'\w|`\w{1,64}`){0,200}?"
"""Matches the start of a message, up to the first quotation.

No two alternatives match the same text: a message may quote a prompt, and an ambiguous repetition
takes exponential time on a hostile one.
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
"""Messages of providers that send no code, for codes that clients should be able to rely on."""

RETRYABLE_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
QUOTA_CODES = frozenset({"insufficient_quota", "billing_error"})
"""Codes of a 429 that is no use retrying."""

MIN_KEY_LENGTH = 8
"""Shorter keys are not redacted: they could be ordinary words."""

MAX_NAME_LENGTH = 200
"""The longest type, code or param that is passed to a client."""

REDACTED = "[redacted]"

REDACTION_MARGIN = 64
"""How many characters after the limit are searched for secrets too."""

MIN_SECRET_LENGTH = 16
"""The length from which SECRET_PATTERN recognises every kind of secret, even without its end."""

SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|key)-[\w*.-]{6,}|\bAIza[\w-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|(?i:bearer )[\w.~+/-]{8,}=*|\beyJ[\w.-]{8,}"
    r"|(?i:(?:x-amz-security-token|(?:secret_?access_?key|session_?token)|(?:x-)?(?:goog-)?api-key)['\"]?\s*[:=]\s*['\"]?[^\s'\",;)]{8,})"
    r"|(?i:authorization['\"]?\s*[:=]\s*['\"]?(?:aws4-[^\n]*|(?:\w+ )?[^\s'\",;)]{8,}))"
)
"""Keys in the formats of their vendors, and headers with a credential: AWS quotes the headers that it checked."""


def infer_code(error: ErrorInfo) -> ErrorInfo:
    """Return the error with a code inferred from its message, unless it has a specific code.

    A number or a sentence is not a specific code.
    """
    code = error.code or ""
    if not (code in VAGUE_CODES or code.isdecimal() or " " in code or not code):
        return error
    codes = (code for code, pattern in CODE_PATTERNS.items() if pattern.match(error.message))
    return replace(error, code=next(codes, error.code))


def redact(message: str, limit: int = 2000) -> str:
    """Return at most `limit` characters of a message, with what looks like a key replaced."""
    # The message may quote a prompt of any length, so it is cut before it is searched.
    start = message[: limit + REDACTION_MARGIN]
    text = SECRET_PATTERN.sub(REDACTED, repair_surrogates(start))
    if len(start) < len(message) and not text.endswith(REDACTED):
        text = text[:-MIN_SECRET_LENGTH]  # perhaps the start of a key, too short to be recognised
    return text[:limit]


def redact_key(text: str, key: str) -> str:
    """Return a text with our own key replaced; a provider may repeat the key that it was sent."""
    return text.replace(key, REDACTED) if len(key) >= MIN_KEY_LENGTH else text


def client_status(status: int) -> int:
    """Return the status for the client: a standard 4xx or 5xx status."""
    # 529 means "overloaded" at Anthropic. Clients and proxies do not know it.
    if status == 529:
        return 503
    return status if 400 <= status < 600 else 502


def error_type(status: int) -> str:
    """Return the error type for a status, for providers that send no type."""
    return TYPE_BY_STATUS.get(status, "model_error")


def infer_status(error: ErrorInfo | ErrorPayload, default: int = 502) -> int:
    """Return the HTTP status for an error inside an answer."""
    code = error.code or ""
    if code.isdecimal() and len(code) == 3 and "400" <= code < "600":
        return int(code)
    return STATUS_BY_CODE.get(code) or STATUS_BY_CODE.get(error.type or "") or default


def is_retryable(status: int, headers: Mapping[str, str], error: ErrorInfo) -> bool:
    """Return whether the same request may succeed a little later."""
    # The SDKs of OpenAI and Anthropic obey this header of their servers.
    advice = headers.get("x-should-retry")
    if advice in ("true", "false"):
        return advice == "true"
    return status in RETRYABLE_STATUSES and not QUOTA_CODES & {error.code, error.type}


RETRY_AFTER = re.compile(r"\d{1,9}(\.\d{1,9})?|\w{3}, \d\d \w{3} \d{4} [\d:]{8} [\w+-]{3,5}", re.ASCII)
"""A delay in seconds, or an HTTP date."""


def retry_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the provider's valid retry headers, which are passed on to the client."""
    # The values go into our own response headers, so only well-formed ones are passed on.
    values = {name: headers.get(name, "") for name in ("retry-after", "retry-after-ms")}
    return {name: value for name, value in values.items() if RETRY_AFTER.fullmatch(value)}


def parse_error(value: object) -> ErrorInfo:
    """Return the error in a parsed body of a common shape: nested, flat or a string."""
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
"""The fields in which servers put the message of an error, in order of preference."""

MAX_ERROR_DEPTH = 6
MAX_REASONS = 5


def find_message(value: object, depth: int = MAX_ERROR_DEPTH) -> str:
    """Return the message of an error, wherever it is nested; of a list, the first few messages."""
    if isinstance(value, str) or not depth:
        return as_string(value)
    # A validation error of a large request may list hundreds of reasons.
    if reasons := as_array(value):
        messages = [find_message(reason, depth - 1) for reason in reasons[:MAX_REASONS]]
        return "; ".join(filter(None, messages))
    fields = as_object(value)
    nested = (find_message(fields[name], depth - 1) for name in MESSAGE_FIELDS if fields.get(name))
    message = next(filter(None, nested), "")
    # Servers built on FastAPI return pydantic's errors, which name the field in `loc`.
    path = [str(step) for step in as_array(fields.get("loc")) if step != "body"]
    return ": ".join(filter(None, [".".join(path), message])) if message else ""


def plain_text_body(headers: Mapping[str, str], body: bytes) -> str:
    """Return the text of a `text/plain` body; empty for web pages and invalid JSON."""
    # Proxies between us and the provider answer in plain text.
    text = body.decode(errors="replace").strip()
    plain = headers.get("content-type", "").lower().startswith("text/plain")
    return text if plain and not text.startswith(("<", "{", "[")) else ""


def _name_or_none(value: object) -> str | None:
    # vLLM and others send the status as a numeric code.
    return str(value) if isinstance(value, str | int) and value not in ("", True, False) else None


MAX_URL_LENGTH = 300
"""The longest address that is passed to a client."""


def redirect_target(status: int, headers: Mapping[str, str], url: str, base_url: str) -> str | None:
    """Return the base URL to which a response redirects; None if it does not redirect.

    No redirect is followed, because the other server would get our key.
    """
    location = headers.get("location")
    if not (location and 300 <= status < 400):
        return None
    try:
        there = urlsplit(urljoin(url, location))
        host = there.netloc.rpartition("@")[2]  # credentials in the location are not repeated
    except ValueError:
        return None
    path = url.partition("?")[0].removeprefix(base_url)
    scheme = {"ws": "http", "wss": "https"}.get(there.scheme, there.scheme)  # that of a base URL
    return f"{scheme}://{host}{there.path.removesuffix(path)}" if host else None


def redirect_advice(url: str) -> str:
    """Return where a server has moved, and what to change."""
    return f"it has moved to {redact(url, MAX_URL_LENGTH)}. Its base_url should lead there."


def redirect_error(provider: str, status: int, url: str) -> UpstreamError:
    """Build the error for a response that redirects."""
    return UpstreamError(f"{provider}: answered {status}: {redirect_advice(url)}", code="upstream_invalid")


def html_page_error(provider: str) -> UpstreamError:
    """Build the error for a web page in place of an answer."""
    message = f"{provider}: answered with a web page. Its base_url probably leads elsewhere."
    return UpstreamError(message, code="upstream_invalid")
