"""A KV manager written with lists and dictionaries alone, straight from the documented behaviour.

It predicts every block id. A block's content is its whole prefix, (namespace, tokens), so nothing here hashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Prefix = tuple[object, tuple[int, ...]]


@dataclass
class PlainTable:
    tokens: list[int]
    space: object
    skip: bool
    blocks: list[int] = field(default_factory=list)
    slots: int = 0
    published: int = 0
    fresh: list[int] = field(default_factory=list)  # blocks published for the plan under way


class PlainKV:
    """``order`` is the reclaimable blocks, front first; ``found`` says which prefix a block is findable as."""

    def __init__(self, num_blocks: int, block_size: int, policy: str, caching: bool) -> None:
        self.size, self.policy, self.caching = block_size, policy, caching
        self.order = list(range(1, num_blocks))
        self.owners = dict.fromkeys(range(num_blocks), 0)
        self.found: dict[int, Prefix] = {}  # in order of publication: the oldest of equal ones comes first
        self.fenced: dict[int, list[int]] = {}  # launched step -> blocks it writes for requests that have left
        self.writing: dict[int, dict[str, set[int]]] = {}  # launched step -> request -> the blocks it writes
        self.tables: dict[str, PlainTable] = {}

    # -- the prefix index --------------------------------------------------------------------------

    def prefix(self, table: PlainTable, block: int) -> Prefix:
        return table.space, tuple(table.tokens[: (block + 1) * self.size])

    def match(self, table: PlainTable) -> list[int]:
        hit: list[int] = []
        if self.caching and not table.skip:
            for i in range((len(table.tokens) - 1) // self.size):
                wanted = self.prefix(table, i)
                block = next((block for block, prefix in self.found.items() if prefix == wanted), None)
                if block is None:
                    break
                hit.append(block)
        return hit

    def publish(self, table: PlainTable) -> None:
        if not self.caching:
            return
        for i in range(table.published, min(table.slots, len(table.tokens)) // self.size):
            self.found[table.blocks[i]] = self.prefix(table, i)
            table.fresh.append(table.blocks[i])
            table.published = i + 1

    # -- blocks ------------------------------------------------------------------------------------

    def needed(self, table: PlainTable, slots: int) -> int:
        return -(-slots // self.size) - len(table.blocks)

    def share(self, table: PlainTable, hit: list[int]) -> None:
        for block in hit:
            if not self.owners[block]:
                self.order.remove(block)
            self.owners[block] += 1
        table.blocks = list(hit)
        table.published = len(hit)

    def grow(self, table: PlainTable, slots: int) -> list[int]:
        taken, self.order = self.order[: self.needed(table, slots)], self.order[self.needed(table, slots) :]
        for block in taken:
            self.owners[block] = 1
            self.found.pop(block, None)
        table.blocks += taken
        table.slots = slots
        self.publish(table)
        return taken

    def put(self, blocks: list[int]) -> None:
        """Returned blocks join the order of re-use, as each policy documents it."""
        free = [block for block in blocks if block not in self.found]
        cached = [block for block in blocks if block in self.found]
        if self.policy == "vllm-0.23":
            self.order += blocks
        elif self.policy == "vllm-0.24":
            self.order = free + self.order + cached
        else:
            kept = [block for block in self.order if block in self.found]
            unused = [block for block in self.order if block not in self.found]
            self.order = unused + free + kept + cached

    def fences(self) -> dict[int, int]:
        return {block: step for step, blocks in self.fenced.items() for block in blocks}

    def give_back(self, name: str) -> None:
        table, returned = self.tables[name], []
        for block in reversed(table.blocks):
            for step, rows in self.writing.items():
                if block in rows.get(name, ()):
                    self.fenced.setdefault(step, []).append(block)
            self.owners[block] -= 1
            if not self.owners[block]:
                returned.append(block)
        fences = self.fences()
        self.put([block for block in returned if block not in fences])
        for block in returned:
            if block in fences:
                self.found.pop(block, None)
        table.blocks, table.slots, table.published = [], 0, 0

    def preempt(self, name: str) -> None:
        for block in self.tables[name].fresh:
            self.found.pop(block, None)
        self.give_back(name)

    def close(self, name: str) -> None:
        self.give_back(name)
        del self.tables[name]

    def has_deeper(self, block: int) -> bool:
        """Whether the next block of the prefix that ``block`` holds is findable."""
        space, tokens = self.found.get(block, (None, None))
        return any(deeper[0] == space and deeper[1][: -self.size] == tokens for deeper in self.found.values())

    def move(self, block: int, to: int) -> None:
        """Both are out of use until the commit of a launched step that writes for the request there."""
        self.order.remove(to)
        self.found.pop(to, None)
        self.found = {to if each == block else each: prefix for each, prefix in self.found.items()}
        self.owners[to], self.owners[block] = self.owners[block], 0
        for name, table in self.tables.items():
            if block not in table.blocks:
                continue
            table.blocks[table.blocks.index(block)] = to
            for step, rows in self.writing.items():
                if block in rows.get(name, ()):
                    rows[name].add(to)
                    self.fenced.setdefault(step, []).append(block)
        if block not in self.fences():
            self.put([block])

    # -- steps -------------------------------------------------------------------------------------

    def launch(self, step: int, rows: dict[str, tuple[int, int]]) -> None:
        for table in self.tables.values():
            table.fresh = []
        self.writing[step] = {
            name: {self.tables[name].blocks[position // self.size] for position in range(start, end)}
            for name, (start, end) in rows.items()
        }

    def commit(self, step: int) -> None:
        del self.writing[step]
        self.put([block for block in self.fenced.pop(step, []) if not self.owners[block]])
