"""What has been told of another server's items, and what has not.

Whatever ends something (a text, a part, an item, the response) is compared with what has been told
of it, and only the rest is told. So a server may send deltas, finished items, or nothing but the
final response: everything is told exactly once. Items are known by their ids where they have some
that stay the same, and by their place otherwise; an empty id is none, and of items that share one
the place tells which is meant.
"""

from antiphon.adapters.fields import Fields, fields_of, json_text, list_of, string
from antiphon.adapters.responses.heard import (
    FACES,
    INDEXES,
    OWNERS,
    WORDS,
    Face,
    Heard,
    Kind,
    is_like,
    kind_of,
    may_be_cut,
    place_of,
)
from antiphon.adapters.responses.items import (
    annotation_of,
    logprobs_of,
    message_of,
    other_of,
    phase_of,
    pieces_of,
    reasoning_of,
    seal_of,
    texts_of,
    wordless,
)
from antiphon.adapters.responses.judge import Delta
from antiphon.core import parts
from antiphon.core.content import LogProb
from antiphon.core.items import ItemReference
from antiphon.core.parts import Part


class Told:
    """The items of one response."""

    def __init__(self) -> None:
        self.calls = False
        self._items: list[Heard] = []
        self._ids: dict[tuple[Kind, str, int | None], Heard] = {}
        """By id and place; without a place, the last that has the id."""
        self._places: dict[tuple[Kind, int | None], Heard] = {}
        self._front: Heard | None = None
        self._late: list[Heard | list[Part]] = []
        """What has to wait for an item that is told only when it is done; and those items."""

    # --- as they grow ---

    def delta(self, face: Face, delta: Delta, text: str) -> list[Part]:
        """Tell more of a text."""
        heard = self._find(OWNERS[face], delta.item_id, delta.output_index)
        if heard is None:
            return []
        index = delta.summary_index if face == "summary" else delta.content_index
        part = index if isinstance(index, int) else 0
        heard.grow(face, part, text)
        logprobs = logprobs_of(delta.logprobs) if delta.logprobs else None
        told = [self._piece(heard, face, part, text, logprobs)]
        return self._in_order(heard, told) if self._late else told

    def text(self, face: Face, raw: Fields, event: Fields) -> list[Part]:
        """Tell the rest of a text, given the whole of it; `event` says where it belongs."""
        heard = self._find(OWNERS[face], event.get("item_id"), event.get("output_index"))
        text = string(raw.get(WORDS.get(face, "text")))
        if heard is None or not text:
            return []
        index = event.get(INDEXES.get(face, "content_index"))
        part = index if isinstance(index, int) else 0
        return self._in_order(heard, self._rest(heard, face, part, raw))

    def part(self, event: Fields) -> list[Part]:
        """Tell the rest of a content part, as it was when it was added or done."""
        raw = fields_of(event.get("part"))
        face = FACES.get(string(raw.get("type")))
        return self.text(face, raw, event) if face else []

    def annotation(self, event: Fields) -> list[Part]:
        """Tell a note on a text."""
        heard = self._find("message", event.get("item_id"), event.get("output_index"))
        note = annotation_of(event.get("annotation"))
        if heard is None or note is None:
            return []
        index, place = event.get("content_index"), event.get("annotation_index")
        part = index if isinstance(index, int) else 0
        if isinstance(place, int) and place < heard.notes.get(part, 0):
            return []
        return self._in_order(heard, [self._note(heard, part, note)])

    def added(self, event: Fields) -> list[Part]:
        """Take note of an item; a call is told at once."""
        item = fields_of(event.get("item"))
        heard = self._announced(item, event.get("output_index"))
        heard.phase = phase_of(item)
        if heard.kind == "other" and heard not in self._late:
            self._late.append(heard)
        told = self._call(heard, item, ended=False) if heard.kind == "call" else []
        return self._in_order(heard, told)

    # --- as they end ---

    def done(self, event: Fields) -> list[Part]:
        """Tell the rest of an item."""
        item = fields_of(event.get("item"))
        heard = self._find(kind_of(item), item.get("id"), event.get("output_index"), item)
        return [] if heard is None else self._completed(heard, item)

    def finish(self, output: object, *, cut: bool = False) -> list[Part]:
        """Tell the rest of a response, given all its items; `cut` is one that is incomplete."""
        items = [fields_of(item) for item in list_of(output)]
        if cut and items and may_be_cut(items[-1]):  # some servers call it completed
            items[-1] = items[-1] | {"status": "incomplete"}
        left = list(self._items)
        found: dict[int, Heard] = {}
        for place, item in enumerate(items):
            known = self._known(kind_of(item), string(item.get("id")), place)
            if known in left:
                left.remove(known)
                found[place] = known
        told: list[Part] = []
        for place, item in enumerate(items):
            heard = found.get(place) or next((h for h in left if is_like(h, item)), None)
            if heard in left:
                left.remove(heard)
            heard = heard or self._begin(kind_of(item), "", None, item)
            told += [] if heard.done else self._completed(heard, item)
        return told + self.flush()

    def flush(self) -> list[Part]:
        """Tell what has waited, in vain or not."""
        late, self._late = self._late, []
        return [part for entry in late if isinstance(entry, list) for part in entry]

    def _in_order(self, heard: Heard, told: list[Part]) -> list[Part]:
        """Keep back what belongs after an item that is still to be told."""
        if not told or all(
            e is heard or isinstance(e, list) or e.key > heard.key for e in self._late
        ):
            return told
        self._late.append(told)
        return []

    def _completed(self, heard: Heard, item: Fields) -> list[Part]:
        told = self._complete(heard, item)
        if heard not in self._late:
            return self._in_order(heard, told)
        self._late[self._late.index(heard)] = told
        waiting = next((n for n, e in enumerate(self._late) if isinstance(e, Heard)), None)
        ready = self._late[:waiting]
        self._late = [] if waiting is None else self._late[waiting:]
        return [part for entry in ready if isinstance(entry, list) for part in entry]

    def _complete(self, heard: Heard, item: Fields) -> list[Part]:
        heard.done = True
        if heard.kind == "message" and (lost := wordless(item)):
            message = f"A message held what cannot be told here, and was left out: {lost[0][:80]}."
            return [parts.Warn("unsupported_content", message), *self._told(heard, item)]
        return self._told(heard, item)

    def _told(self, heard: Heard, item: Fields) -> list[Part]:
        match heard.kind:
            case "call":
                return self._call(heard, item, ended=True)
            case "message" if heard.said or heard.notes:
                return self._message_rest(heard, item)
            case "reasoning" if heard.said:
                return self._reasoning_rest(heard, item)
            case "message":
                whole = message_of(item)
            case "reasoning":
                whole = reasoning_of(item)
            case "other":
                whole = other_of(item)
        if heard not in self._late:
            self._front = None
        return [] if isinstance(whole, ItemReference) else [parts.Whole(whole)]

    def _message_rest(self, heard: Heard, item: Fields) -> list[Part]:
        told: list[Part] = []
        for index, piece in enumerate(pieces_of(item)):
            raw = fields_of(piece)
            face = FACES.get(string(raw.get("type")), "text")
            told += self._rest(heard, face, index, raw)
        return told

    def _reasoning_rest(self, heard: Heard, item: Fields) -> list[Part]:
        told: list[Part] = []
        for index, text in enumerate(texts_of(item.get("content"))):
            told += self._rest(heard, "raw", index, {"text": text})
        for index, text in enumerate(texts_of(item.get("summary"))):
            told += self._rest(heard, "summary", index, {"text": text})
        raw = any(face == "raw" for face, _ in heard.said)
        if (seal := seal_of(item, raw=raw)) and self._front is heard:
            told.append(parts.Reasoning(key=heard.key, encrypted_content=seal))
        return told

    def _rest(self, heard: Heard, face: Face, part: int, raw: Fields) -> list[Part]:
        told: list[Part] = []
        text = string(raw.get(WORDS.get(face, "text")))
        fresh = (face, part) not in heard.said
        if new := heard.rest(face, part, text):
            logprobs = logprobs_of(raw.get("logprobs")) if fresh else None
            told.append(self._piece(heard, face, part, new, logprobs))
        notes = map(annotation_of, list_of(raw.get("annotations"))[heard.notes.get(part, 0) :])
        told += [self._note(heard, part, note) for note in notes if note]
        return told

    # --- parts ---

    def _piece(
        self, heard: Heard, face: Face, part: int, text: str, logprobs: list[LogProb] | None = None
    ) -> Part:
        if face == "arguments":
            return parts.Call(heard.key, arguments=text)
        self._front = heard
        match face:
            case "text":
                return parts.Text(text, heard.key, part, logprobs, heard.phase)
            case "refusal":
                heard.phase = None  # only words can open a message in a phase
                return parts.Refusal(text, heard.key, part)
            case "raw":
                return parts.Reasoning(text, heard.key, part)
            case "summary":
                return parts.Reasoning(key=heard.key, part=part, summary=text)

    def _note(self, heard: Heard, part: int, note: parts.AnnotationValue) -> Part:
        if not heard.said:
            heard.phase = None
        heard.notes[part] = heard.notes.get(part, 0) + 1
        self._front = heard
        return parts.Annotation(note, heard.key, part)

    def _call(self, heard: Heard, item: Fields, *, ended: bool) -> list[Part]:
        """Tell a call: its name and id once, and what is new of its arguments."""
        text = json_text(item.get("arguments") or "")
        # An empty object in an item that has only begun stands for what is still to come.
        new = heard.rest("arguments", 0, text) if ended or text != "{}" else ""
        complete = ended and item.get("status") != "incomplete" and heard.is_callable()
        name = call_id = ""
        if not heard.named and (name := string(item.get("name"))):
            call_id = string(item.get("call_id"))
            heard.named = self.calls = True
            self._front = None
        return [parts.Call(heard.key, name, new, call_id, complete)]

    # --- which item is meant ---

    def _find(
        self, kind: Kind, id: object, index: object, item: Fields | None = None
    ) -> Heard | None:
        """Return the item that an event is about; None if it is over."""
        name, place = string(id), place_of(index)
        heard = self._known(kind, name, place)
        if heard and not (heard.done and heard.is_elsewhere(place)):
            return None if heard.done else heard
        if place is not None or not name:
            heard = self._places.get((kind, place))
            if heard is not None and not heard.done:
                return heard
        return self._begin(kind, name, place, item or {})

    def _known(self, kind: Kind, id: str, place: int | None) -> Heard | None:
        if not id:
            return None
        return self._ids.get((kind, id, place)) or self._ids.get((kind, id, None))

    def _announced(self, item: Fields, index: object) -> Heard:
        kind, id, place = kind_of(item), string(item.get("id")), place_of(index)
        heard = self._known(kind, id, place)
        if heard is None or heard.done or (heard.announced and heard.is_elsewhere(place)):
            heard = self._places.get((kind, place))
            if heard is None or heard.announced or heard.done:
                heard = self._begin(kind, id, place, item)
        self._name(heard, id, place)
        heard.announced = True
        return heard

    def _begin(self, kind: Kind, id: str, place: int | None, item: Fields) -> Heard:
        heard = Heard(kind, string(item.get("type")), len(self._items))
        self._items.append(heard)
        self._places[kind, place] = heard
        self._name(heard, id, place)
        return heard

    def _name(self, heard: Heard, id: str, place: int | None) -> None:
        """Take note of where an item is, and under which id."""
        heard.place = heard.place if place is None else place
        if id:
            self._ids[heard.kind, id, place] = self._ids[heard.kind, id, None] = heard
