"""Images, files and audio in requests: data URLs, addresses and ids of uploaded files. Log probabilities in answers."""

import base64
import binascii
import mimetypes
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.protocol.items import ExtensionContent, InputFile, InputImage, InputVideo, LogProb, TopLogProb
from antiphon.protocol.struct import as_object, as_string

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
TEXT_TYPES = re.compile(r"text/|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|javascript|toml|sql)$")
"""The media types of text files."""

MEDIA_CONTENT = frozenset({InputImage, InputFile, InputVideo, ExtensionContent})
"""The content types that not every provider accepts."""

DATA_URL = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*(?P<coded>;base64)?,")


class Media(Struct, frozen=True, kw_only=True):
    """An image, a file or audio. Exactly one of `data`, `url` and `id` is set.

    `data` is base64. `media_type` is empty if it is unknown.
    """

    media_type: str = ""
    data: str = ""
    url: str = ""
    id: str = ""
    name: str = ""

    @property
    def is_text(self) -> bool:
        return TEXT_TYPES.match(self.media_type) is not None

    @property
    def raw(self) -> bytes:
        """The bytes of `data`."""
        return base64.b64decode(self.data)

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"


def read_media(part: InputImage | InputFile) -> tuple[Media, bool]:
    """Read an image or a file, and tell whether it is an image; raises ValueError with what is wrong with it."""
    media = read_image(part) if isinstance(part, InputImage) else read_file(part)
    is_image = isinstance(part, InputImage) or media.media_type.startswith("image/")
    if is_image and media.data and media.media_type not in IMAGE_TYPES:
        raise ValueError(f"an image may be a JPEG, PNG, GIF or WebP, not {media.media_type}")
    return media, is_image


def read_image(part: InputImage) -> Media:
    """Read an image; raises ValueError with what is wrong with it."""
    return _read_url(part.image_url) if part.image_url else Media(id=_file_id(part))


def read_file(part: InputFile) -> Media:
    """Read a file; raises ValueError with what is wrong with it."""
    name = part.filename or ""
    if part.file_data and not part.file_data.startswith("data:"):
        # OpenAI's clients send bare base64, with the type only in the name of the file.
        media_type = mimetypes.guess_type(name)[0] or "application/pdf"
        return _check_base64(Media(media_type=media_type, data=part.file_data, name=name))
    url = part.file_data or part.file_url
    if not url:
        return Media(id=_file_id(part), name=name)
    found = _read_url(url)
    media_type = found.media_type or mimetypes.guess_type(name or found.url)[0] or ""
    return replace(found, media_type=media_type, name=name)


def read_audio(part: ExtensionContent) -> Media:
    """Read audio; raises ValueError with what is wrong with it."""
    audio = as_object(part.get("input_audio"))
    data, format = as_string(audio.get("data")), as_string(audio.get("format"))
    if not (data and format):
        raise ValueError("it has no data or no format")
    return Media(media_type=f"audio/{format}", data=data)


def _file_id(part: InputImage | InputFile) -> str:
    id = part.get("file_id")
    if not (isinstance(id, str) and id):
        raise ValueError("it names neither data nor an address")
    return id


def _read_url(url: str) -> Media:
    if url[:5].lower() != "data:":
        if not url.startswith(("https://", "http://", "gs://", "s3://")):
            raise ValueError("its address is neither a data URL nor http(s)")
        return Media(media_type=mimetypes.guess_type(url.partition("?")[0])[0] or "", url=url)
    # `match` reads only the head: the data itself may be many megabytes.
    head = DATA_URL.match(url)
    if head is None:
        raise ValueError("its data URL cannot be read; write data:<type>;base64,<data>")
    media_type, data = head["media_type"] or "text/plain", url[head.end() :]
    if not head["coded"]:
        from urllib.parse import unquote_to_bytes

        data = base64.b64encode(unquote_to_bytes(data)).decode()
    media_type = media_type.lower().replace("image/jpg", "image/jpeg")  # a common mistake
    return _check_base64(Media(media_type=media_type, data=data))


def _check_base64(media: Media) -> Media:
    try:
        data = base64.b64decode(media.data, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("its data is not base64") from None
    if not data:
        raise ValueError("its data is empty")
    return media


class TokenLogprob(Struct, gc=False):
    """A token with its log probability, and the most likely alternatives."""

    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None
    top_logprobs: "list[TokenLogprob] | None" = None

    @property
    def utf8(self) -> list[int]:
        """The bytes of the token; those of its text, if the provider left them out."""
        return list(self.token.encode(errors="replace")) if self.bytes is None else self.bytes


def convert_logprobs(tokens: Sequence[TokenLogprob] | None) -> list[LogProb] | None:
    """Convert tokens; None if there are none."""
    converted: list[LogProb] = []
    for token in tokens or ():
        alternatives = [
            TopLogProb(token=other.token, logprob=other.logprob, bytes=other.utf8) for other in token.top_logprobs or ()
        ]
        converted.append(LogProb(token=token.token, logprob=token.logprob, bytes=token.utf8, top_logprobs=alternatives))
    return converted or None
