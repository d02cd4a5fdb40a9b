"""What has been told of another server's items, and what has not.

Whatever ends something (a text, a part, an item, the response) is compared with what has been told
of it, and only the rest is told. So a server may send deltas, finished items, or nothing but the
final response: everything is told exactly once. Items are known by their ids where they have some
that stay the same, and by their place otherwise; an empty id is none, and of items that share one
the place tells which is meant.
"""

from antiphon.adapters.json_access import (
    JsonObject,
    as_array,
    as_object,
    as_string,
    to_json_text,
)
from antiphon.adapters.open_responses.item_values import (
    encrypted_content_of,
    message_content,
    read_annotation,
    read_logprobs,
    read_message,
    read_other_item,
    read_phase,
    read_reasoning,
    read_texts,
    unsupported_content,
)
from antiphon.adapters.open_responses.stream_checker import DeltaFields
from antiphon.adapters.open_responses.tracked_item import (
    INDEX_FIELDS,
    ITEM_KINDS,
    TEXT_FIELDS,
    TEXT_KINDS,
    Kind,
    TextKind,
    TrackedItem,
    kind_of,
    matches,
    may_be_truncated,
    read_index,
)
from antiphon.protocol import parts
from antiphon.protocol.content import LogProb
from antiphon.protocol.items import ItemReference
from antiphon.protocol.parts import Part


class ItemTracker:
    """The items of one response."""

    def __init__(self) -> None:
        self.has_calls = False
        self._items: list[TrackedItem] = []
        self._by_id: dict[tuple[Kind, str, int | None], TrackedItem] = {}
        """By id and place; without a place, the last that has the id."""
        self._by_index: dict[tuple[Kind, int | None], TrackedItem] = {}
        self._last_open: TrackedItem | None = None
        self._delayed: list[TrackedItem | list[Part]] = []
        """What has to wait for an item that is told only when it is done; and those items."""

    # --- as they grow ---

    def feed_delta(self, face: TextKind, delta: DeltaFields, text: str) -> list[Part]:
        """Tell more of a text."""
        heard = self._find(ITEM_KINDS[face], delta.item_id, delta.output_index)
        if heard is None:
            return []
        index = delta.summary_index if face == "summary" else delta.content_index
        part = index if isinstance(index, int) else 0
        heard.append(face, part, text)
        logprobs = read_logprobs(delta.logprobs) if delta.logprobs else None
        told = [self._text_part(heard, face, part, text, logprobs)]
        return self._in_order(heard, told) if self._delayed else told

    def feed_text(self, face: TextKind, raw: JsonObject, event: JsonObject) -> list[Part]:
        """Tell the rest of a text, given the whole of it; `event` says where it belongs."""
        heard = self._find(ITEM_KINDS[face], event.get("item_id"), event.get("output_index"))
        text = as_string(raw.get(TEXT_FIELDS.get(face, "text")))
        if heard is None or not text:
            return []
        index = event.get(INDEX_FIELDS.get(face, "content_index"))
        part = index if isinstance(index, int) else 0
        return self._in_order(heard, self._text_remainder(heard, face, part, raw))

    def feed_part(self, event: JsonObject) -> list[Part]:
        """Tell the rest of a content part, as it was when it was added or done."""
        raw = as_object(event.get("part"))
        face = TEXT_KINDS.get(as_string(raw.get("type")))
        return self.feed_text(face, raw, event) if face else []

    def feed_annotation(self, event: JsonObject) -> list[Part]:
        """Tell a note on a text."""
        heard = self._find("message", event.get("item_id"), event.get("output_index"))
        note = read_annotation(event.get("annotation"))
        if heard is None or note is None:
            return []
        index, place = event.get("content_index"), event.get("annotation_index")
        part = index if isinstance(index, int) else 0
        if isinstance(place, int) and place < heard.annotations.get(part, 0):
            return []
        return self._in_order(heard, [self._annotation_part(heard, part, note)])

    def item_added(self, event: JsonObject) -> list[Part]:
        """Take note of an item; a call is told at once."""
        item = as_object(event.get("item"))
        heard = self._announce(item, event.get("output_index"))
        heard.phase = read_phase(item)
        if heard.kind == "other" and heard not in self._delayed:
            self._delayed.append(heard)
        told = self._call_part(heard, item, ended=False) if heard.kind == "call" else []
        return self._in_order(heard, told)

    # --- as they end ---

    def item_done(self, event: JsonObject) -> list[Part]:
        """Tell the rest of an item."""
        item = as_object(event.get("item"))
        heard = self._find(kind_of(item), item.get("id"), event.get("output_index"), item)
        return [] if heard is None else self._finish_item(heard, item)

    def finish(self, output: object, *, cut: bool = False) -> list[Part]:
        """Tell the rest of a response, given all its items; `cut` is one that is incomplete."""
        items = [as_object(item) for item in as_array(output)]
        if cut and items and may_be_truncated(items[-1]):  # some servers call it completed
            items[-1] = items[-1] | {"status": "incomplete"}
        left = list(self._items)
        found: dict[int, TrackedItem] = {}
        for place, item in enumerate(items):
            known = self._known(kind_of(item), as_string(item.get("id")), place)
            if known in left:
                left.remove(known)
                found[place] = known
        told: list[Part] = []
        for place, item in enumerate(items):
            heard = found.get(place) or next((h for h in left if matches(h, item)), None)
            if heard in left:
                left.remove(heard)
            heard = heard or self._begin(kind_of(item), "", None, item)
            told += [] if heard.done else self._finish_item(heard, item)
        return told + self.flush()

    def flush(self) -> list[Part]:
        """Tell what has waited, in vain or not."""
        late, self._delayed = self._delayed, []
        return [part for entry in late if isinstance(entry, list) for part in entry]

    def _in_order(self, heard: TrackedItem, told: list[Part]) -> list[Part]:
        """Keep back what belongs after an item that is still to be told."""
        if not told or all(
            e is heard or isinstance(e, list) or e.key > heard.key for e in self._delayed
        ):
            return told
        self._delayed.append(told)
        return []

    def _finish_item(self, heard: TrackedItem, item: JsonObject) -> list[Part]:
        told = self._item_parts(heard, item)
        if heard not in self._delayed:
            return self._in_order(heard, told)
        self._delayed[self._delayed.index(heard)] = told
        waiting = next((n for n, e in enumerate(self._delayed) if isinstance(e, TrackedItem)), None)
        ready = self._delayed[:waiting]
        self._delayed = [] if waiting is None else self._delayed[waiting:]
        return [part for entry in ready if isinstance(entry, list) for part in entry]

    def _item_parts(self, heard: TrackedItem, item: JsonObject) -> list[Part]:
        heard.done = True
        if heard.kind == "message" and (lost := unsupported_content(item)):
            message = f"A message held what cannot be told here, and was left out: {lost[0][:80]}."
            return [parts.Warn("unsupported_content", message), *self._remaining_parts(heard, item)]
        return self._remaining_parts(heard, item)

    def _remaining_parts(self, heard: TrackedItem, item: JsonObject) -> list[Part]:
        match heard.kind:
            case "call":
                return self._call_part(heard, item, ended=True)
            case "message" if heard.texts or heard.annotations:
                return self._message_remainder(heard, item)
            case "reasoning" if heard.texts:
                return self._reasoning_remainder(heard, item)
            case "message":
                whole = read_message(item)
            case "reasoning":
                whole = read_reasoning(item)
            case "other":
                whole = read_other_item(item)
        if heard not in self._delayed:
            self._last_open = None
        return [] if isinstance(whole, ItemReference) else [parts.Whole(whole)]

    def _message_remainder(self, heard: TrackedItem, item: JsonObject) -> list[Part]:
        told: list[Part] = []
        for index, piece in enumerate(message_content(item)):
            raw = as_object(piece)
            face = TEXT_KINDS.get(as_string(raw.get("type")), "text")
            told += self._text_remainder(heard, face, index, raw)
        return told

    def _reasoning_remainder(self, heard: TrackedItem, item: JsonObject) -> list[Part]:
        told: list[Part] = []
        for index, text in enumerate(read_texts(item.get("content"))):
            told += self._text_remainder(heard, "raw", index, {"text": text})
        for index, text in enumerate(read_texts(item.get("summary"))):
            told += self._text_remainder(heard, "summary", index, {"text": text})
        raw = any(face == "raw" for face, _ in heard.texts)
        if (seal := encrypted_content_of(item, raw=raw)) and self._last_open is heard:
            told.append(parts.Reasoning(key=heard.key, encrypted_content=seal))
        return told

    def _text_remainder(
        self, heard: TrackedItem, face: TextKind, part: int, raw: JsonObject
    ) -> list[Part]:
        told: list[Part] = []
        text = as_string(raw.get(TEXT_FIELDS.get(face, "text")))
        fresh = (face, part) not in heard.texts
        if new := heard.remainder(face, part, text):
            logprobs = read_logprobs(raw.get("logprobs")) if fresh else None
            told.append(self._text_part(heard, face, part, new, logprobs))
        notes = map(
            read_annotation, as_array(raw.get("annotations"))[heard.annotations.get(part, 0) :]
        )
        told += [self._annotation_part(heard, part, note) for note in notes if note]
        return told

    # --- parts ---

    def _text_part(
        self,
        heard: TrackedItem,
        face: TextKind,
        part: int,
        text: str,
        logprobs: list[LogProb] | None = None,
    ) -> Part:
        if face == "arguments":
            return parts.Call(heard.key, arguments=text)
        self._last_open = heard
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

    def _annotation_part(self, heard: TrackedItem, part: int, note: parts.AnnotationValue) -> Part:
        if not heard.texts:
            heard.phase = None
        heard.annotations[part] = heard.annotations.get(part, 0) + 1
        self._last_open = heard
        return parts.Annotation(note, heard.key, part)

    def _call_part(self, heard: TrackedItem, item: JsonObject, *, ended: bool) -> list[Part]:
        """Tell a call: its name and id once, and what is new of its arguments."""
        text = to_json_text(item.get("arguments") or "")
        # An empty object in an item that has only begun stands for what is still to come.
        new = heard.remainder("arguments", 0, text) if ended or text != "{}" else ""
        complete = ended and item.get("status") != "incomplete" and heard.has_whole_arguments()
        name = call_id = ""
        if not heard.named and (name := as_string(item.get("name"))):
            call_id = as_string(item.get("call_id"))
            heard.named = self.has_calls = True
            self._last_open = None
        return [parts.Call(heard.key, name, new, call_id, complete)]

    # --- which item is meant ---

    def _find(
        self, kind: Kind, id: object, index: object, item: JsonObject | None = None
    ) -> TrackedItem | None:
        """Return the item that an event is about; None if it is over."""
        name, place = as_string(id), read_index(index)
        heard = self._known(kind, name, place)
        if heard and not (heard.done and heard.is_elsewhere(place)):
            return None if heard.done else heard
        if place is not None or not name:
            heard = self._by_index.get((kind, place))
            if heard is not None and not heard.done:
                return heard
        return self._begin(kind, name, place, item or {})

    def _known(self, kind: Kind, id: str, place: int | None) -> TrackedItem | None:
        if not id:
            return None
        return self._by_id.get((kind, id, place)) or self._by_id.get((kind, id, None))

    def _announce(self, item: JsonObject, index: object) -> TrackedItem:
        kind, id, place = kind_of(item), as_string(item.get("id")), read_index(index)
        heard = self._known(kind, id, place)
        if heard is None or heard.done or (heard.announced and heard.is_elsewhere(place)):
            heard = self._by_index.get((kind, place))
            if heard is None or heard.announced or heard.done:
                heard = self._begin(kind, id, place, item)
        self._index_item(heard, id, place)
        heard.announced = True
        return heard

    def _begin(self, kind: Kind, id: str, place: int | None, item: JsonObject) -> TrackedItem:
        heard = TrackedItem(kind, as_string(item.get("type")), len(self._items))
        self._items.append(heard)
        self._by_index[kind, place] = heard
        self._index_item(heard, id, place)
        return heard

    def _index_item(self, heard: TrackedItem, id: str, place: int | None) -> None:
        """Take note of where an item is, and under which id."""
        heard.index = heard.index if place is None else place
        if id:
            self._by_id[heard.kind, id, place] = self._by_id[heard.kind, id, None] = heard
