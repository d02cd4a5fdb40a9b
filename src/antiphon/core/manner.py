"""How a response is written, beyond what its parts say."""

from collections.abc import Callable

from msgspec import Struct

from antiphon.core.items import Item


class SynthOptions(Struct, frozen=True):
    """A writer's habits; by default there are none."""

    keep_empty: bool = False
    """Whether deltas without words are told too."""

    pad: Callable[[str], str] | None = None
    """Makes the noise that hides how long a delta is."""

    seal: Callable[[Item], Item] | None = None
    """Closes what only its maker may read, before an item leaves."""

    one_message: bool = False
    """Whether all words go to one message, which is the first item and open to the end."""

    calls_by_id: bool = False
    """Whether the item of a call has the id of the call."""

    ids: Callable[[str], str] | None = None
    """Makes the ids of items in another form than the synthesizer's own source."""


DEFAULT_OPTIONS = SynthOptions()
