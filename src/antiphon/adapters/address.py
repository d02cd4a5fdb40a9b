"""Addresses that tell who answers there."""

from urllib.parse import urlsplit


def is_openai(url: str) -> bool:
    """Tell whether an address is OpenAI's own."""
    return f".{url_host(url)}".endswith(".api.openai.com")


def url_host(url: str) -> str:
    """Return the host that an address names; nothing if it is none, which is said when asked."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
