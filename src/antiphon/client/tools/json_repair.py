"""JSON that stops short, closed: missing brackets, a comma too many.

Small models forget these, and nothing else is guessed at: half a string may be half a path.
"""

_CLOSING_BRACKETS = {"{": "}", "[": "]"}


def repair_json(text: str) -> str:
    """Close what a text left open; whether it is JSON then is for a parser to say.

    >>> closed('{"city": "Oslo", "days": [1, 2,')
    '{"city": "Oslo", "days": [1, 2]}'
    """
    told: list[str] = []
    waiting: list[str] = []
    inside = escaped = False
    for sign in text.rstrip():
        if escaped:
            escaped = False  # the second half of an escape means nothing by itself
        elif inside and sign == "\\":
            escaped = True
        elif sign == '"':
            inside = not inside
        elif not inside and sign in _CLOSING_BRACKETS:
            waiting.append(_CLOSING_BRACKETS[sign])
        elif not inside and waiting and sign == waiting[-1]:
            _drop_trailing_comma(told)
            waiting.pop()
        told.append(sign)
    if inside:
        return text
    _drop_trailing_comma(told)
    return "".join([*told, *reversed(waiting)])


def _drop_trailing_comma(characters: list[str]) -> None:
    """Take back a comma that nothing follows."""
    while characters and characters[-1].isspace():
        characters.pop()
    if characters and characters[-1] == ",":
        characters.pop()
