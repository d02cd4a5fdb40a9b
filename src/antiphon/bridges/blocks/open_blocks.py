"""Which blocks are open: providers reuse indexes, leave starts and stops out, and stop blocks of the wrong type."""

from typing import Generic, TypeVar

from antiphon.bridges.blocks.events import BlockType

V = TypeVar("V")


class OpenBlocks(Generic[V]):
    """The open blocks, each with a value of the caller's."""

    def __init__(self) -> None:
        self._by_index: dict[int, dict[BlockType, V]] = {}
        """By index and type, each index's blocks in the order in which they were opened."""

    def add(self, index: int, block_type: BlockType, value: V) -> None:
        """Add a block that was opened."""
        self._by_index.setdefault(index, {})[block_type] = value

    def find(self, index: int, *types: BlockType) -> BlockType | None:
        """Return the type of the block of an index that was opened last, among some types."""
        return next((one for one in reversed(self._by_index.get(index, {})) if one in types), None)

    def find_stopped(self, index: int, block_type: BlockType) -> BlockType | None:
        """Return the type of the block that a stop is about: the one it names, or else the one opened last."""
        opened = self._by_index.get(index, {})
        return block_type if block_type in opened else next(reversed(opened), None)

    def get(self, index: int, block_type: BlockType) -> V:
        """Return the value of an open block."""
        return self._by_index[index][block_type]

    def pop(self, index: int, block_type: BlockType) -> V:
        """Remove a block and return its value."""
        opened = self._by_index[index]
        value = opened.pop(block_type)
        if not opened:
            del self._by_index[index]
        return value
