"""The types and event names that only OpenAI has, and how they are written inside Antiphon.

A type that is not in the specification has the form `slug:name`. OpenAI writes its own types
without a slug; here they get `openai:`.
"""

import re
from collections.abc import Callable
from typing import cast

from antiphon.protocol.json_values import JsonObject, as_array, as_object, as_string
from antiphon.protocol.struct import is_extension_type

SLUG = "openai:"
OPENAI_ITEMS = frozenset(
    """additional_tools apply_patch_call apply_patch_call_output code_interpreter_call
    compaction_trigger computer_call computer_call_output configuration_update custom_tool_call
    custom_tool_call_output file_search_call image_generation_call local_shell_call
    local_shell_call_output mcp_approval_request mcp_approval_response mcp_call mcp_list_tools
    program program_output shell_call shell_call_output tool_search_call tool_search_output
    web_search_call""".split()
)
OPENAI_TOOLS = frozenset(
    """apply_patch code_interpreter computer computer_use computer_use_preview custom file_search
    image_generation local_shell mcp namespace programmatic_tool_calling shell tool_search
    web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11""".split()
)
OPENAI_CONTENT = frozenset({"input_audio", "output_audio", "computer_screenshot"})
OPENAI_ANNOTATIONS = frozenset({"file_citation", "container_file_citation", "file_path"})

OPENAI_EVENT_SUBJECTS = OPENAI_ITEMS | {
    "audio",
    "code_interpreter_call_code",
    "compaction",
    "custom_tool_call_input",
    "mcp_call_arguments",
    "shell_call_command",
    "shell_call_output_content",
}
"""What OpenAI's own events are about: `response.web_search_call.searching` and the like."""

REASONING_PREFIXES = ("response.reasoning_text.", "response.reasoning_content.")
"""What OpenAI and other servers write for the specification's `response.reasoning.`."""


def add_slugs(raw: object) -> object:
    """Give OpenAI's own types their slug, wherever a request or a response may hold them."""
    if not isinstance(raw, dict):
        return raw
    # The fields of a request are also those of a response, which echoes most of them.
    fields = dict(cast("JsonObject", raw))
    for name, add in (("input", add_item_slugs), ("tools", _add_tool_slug)):
        if isinstance(fields.get(name), list):
            fields[name] = [add(entry) for entry in as_array(fields[name])]
    if isinstance(fields.get("tool_choice"), dict):
        choice = _map_lists(_add_tool_slug(fields["tool_choice"]), ("tools",), _add_tool_slug)
        fields["tool_choice"] = choice
    return fields


def add_item_slugs(raw: object) -> object:
    """Give an item, its content and their annotations their slugs."""
    return _map_lists(_add_known_slug(raw, OPENAI_ITEMS), ("content", "output"), add_content_slugs)


def add_content_slugs(raw: object) -> object:
    """Give a content part and its annotations their slugs."""
    part = _add_known_slug(raw, OPENAI_CONTENT)
    return _map_lists(part, ("annotations",), add_annotation_slug)


def add_annotation_slug(raw: object) -> object:
    """Give an annotation its slug."""
    return _add_known_slug(raw, OPENAI_ANNOTATIONS)


def add_slug(type: str, slug: str) -> str:
    """Give a type a slug, unless it has one; characters that a slug cannot be followed by become _.

    >>> add_slug("odd type", "responses:"), add_slug("acme:search", "responses:")
    ('responses:odd_type', 'acme:search')
    """
    if is_extension_type(type):
        return type
    # The specification asks for `slug:name`, both of letters, digits and underscores.
    return slug + (re.sub(r"\W", "_", type, flags=re.ASCII) or "unknown")


def canonical_event_type(type: str) -> str:
    """Return the specification's name of an event that has several."""
    for prefix in REASONING_PREFIXES:
        if type.startswith(prefix):
            return "response.reasoning." + type.removeprefix(prefix)
    return type


def extension_event_type(type: str) -> str:
    """Return the type of an event that the specification does not have; OpenAI's get a slug."""
    subject = type.partition("response.")[2].partition(".")[0]
    # A `keepalive` is about nothing, and counts as OpenAI's.
    is_openai = subject in OPENAI_EVENT_SUBJECTS or type == "keepalive"
    return f"{SLUG}{subject}" if is_openai else type


def _add_tool_slug(raw: object) -> object:
    return _add_known_slug(raw, OPENAI_TOOLS)


def _map_lists(raw: object, names: tuple[str, ...], change: Callable[[object], object]) -> object:
    fields = as_object(raw)
    lists = {name: as_array(fields[name]) for name in names if isinstance(fields.get(name), list)}
    changed = {name: [change(entry) for entry in lists[name]] for name in lists}
    return fields | changed if changed else raw


def _add_known_slug(raw: object, known: frozenset[str]) -> object:
    name = as_string(as_object(raw).get("type"))
    return as_object(raw) | {"type": SLUG + name} if name in known else raw
