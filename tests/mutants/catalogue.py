"""One-line mutants of the block accounting and the scheduler: each a bug that somebody could have written.

They are chosen by hand: off-by-ones, forgotten cases, steps left out, and the rules of the design taken back one by
one. `run_mutants` shows which test notices each of them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "pellucid"


class CatalogueError(Exception):
    """A mutant that does not fit the source as it is now."""


@dataclass(frozen=True)
class Mutant:
    """``line`` of ``file`` (both as they stand, indentation aside) becomes ``mutated``, which ``breaks`` something.

    ``inside`` names the function (or ``Class.function``) where the line stands more than once in its file.
    ``equivalent`` is the reason why nobody could ever tell the difference, if nobody could.
    """

    file: str
    line: str
    mutated: str
    breaks: str
    inside: str | None = None
    equivalent: str | None = None

    def locate(self, package: Path = PACKAGE) -> int:
        """The index of the line to mutate. Raises `CatalogueError` unless exactly one fits."""
        source = (package / self.file).read_text()
        lines = source.splitlines()
        first, last = _extent(source, self.inside) if self.inside else (0, len(lines))
        found = [i for i in range(first, last) if lines[i].strip() == self.line]
        if len(found) != 1:
            where = f"{self.file}{f', {self.inside}' if self.inside else ''}"
            raise CatalogueError(f"{len(found)} lines of {where} read {self.line!r}, and one must; mend the catalogue.")
        return found[0]

    def place(self, package: Path = PACKAGE) -> str:
        """The innermost function around the line, for people."""
        row = self.locate(package)
        around = [name for name, (first, last) in _functions((package / self.file).read_text()) if first <= row < last]
        return around[-1] if around else "(module)"

    def apply(self, package: Path) -> None:
        """Change the line in the copy at ``package``."""
        row = self.locate(package)
        path = package / self.file
        lines = path.read_text().splitlines(keepends=True)
        indent = lines[row][: len(lines[row]) - len(lines[row].lstrip())]
        lines[row] = f"{indent}{self.mutated}\n"
        path.write_text("".join(lines))


def _functions(source: str) -> list[tuple[str, tuple[int, int]]]:
    """Every function as ``Class.function`` with its half-open extent in lines, outer ones first."""
    found: list[tuple[str, tuple[int, int]]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if isinstance(child, ast.FunctionDef):
                    found.append((name, (child.lineno - 1, child.end_lineno or child.lineno)))
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return found


def _extent(source: str, function: str) -> tuple[int, int]:
    fitting = [extent for name, extent in _functions(source) if name == function or name.endswith(f".{function}")]
    if len(fitting) != 1:
        raise CatalogueError(f"{len(fitting)} functions are named {function!r}, and one must be; mend the catalogue.")
    return fitting[0]


POOL = [
    Mutant(
        "kv/pool.py",
        "first_use = self.blocks[RESERVED_BLOCK + 1 :]",
        "first_use = self.blocks[RESERVED_BLOCK:]",
        "the reserved block is handed out",
    ),
    Mutant("kv/pool.py", "if num_blocks < 2:", "if num_blocks < 1:", "a pool without a usable block is accepted"),
    Mutant(
        "kv/pool.py", "return len(self.blocks) - 1", "return len(self.blocks)", "the reserved block counts as usable"
    ),
    Mutant(
        "kv/pool.py",
        "block.owners = 1",
        "block.owners += 1",
        "nothing: taking counts up instead of setting",
        equivalent="a reclaimable block has no owner, so counting up from 0 is the same",
    ),
    Mutant("kv/pool.py", "self.taken += count", "self.taken += 1", "taking several blocks counts as one"),
    Mutant(
        "kv/pool.py",
        "if block.owners == 0:",
        "if block.owners == 1:",
        "a revived block stays in the order of re-use",
        inside="share",
    ),
    Mutant("kv/pool.py", "block.owners += 1", "block.owners = 1", "a shared block has one owner only"),
    Mutant("kv/pool.py", "self.taken += len(blocks)", "pass", "shared blocks are not counted as taken"),
    Mutant(
        "kv/pool.py",
        "if block.owners == 0:",
        "if block.owners <= 1:",
        "a block returns while somebody still owns it",
        inside="give_back",
    ),
    Mutant("kv/pool.py", "block.owners -= 1", "block.owners = 0", "one owner's end takes the block from all"),
    Mutant(
        "kv/pool.py", "self.returned += len(blocks)", "self.returned += len(ownerless)", "shared returns do not count"
    ),
    Mutant("kv/pool.py", "if block.id in written:", "if False:", "no fences at all"),
    Mutant(
        "kv/pool.py",
        "(held_back if block.fence else ownerless).append(block)",
        "ownerless.append(block)",
        "fenced blocks are reclaimable at once",
    ),
    Mutant(
        "kv/pool.py",
        "self.fenced.setdefault(fence, []).append(block)",
        "self.fenced[fence] = [block]",
        "of several blocks behind one fence all but the last are lost",
        inside="give_back",
    ),
    Mutant(
        "kv/pool.py",
        "self.reclaimable.put([block for block in blocks if block.owners == 0])",
        "self.reclaimable.put(blocks)",
        "a block that still has readers returns when its writer's fence is lifted",
    ),
    Mutant(
        "kv/pool.py",
        "blocks = self.fenced.pop(step, [])",
        "blocks = self.fenced.pop(step + 1, [])",
        "a fence is lifted one step too early",
    ),
    Mutant("kv/pool.py", "block.fence = 0", "pass", "a block stays marked as fenced after its fence is lifted"),
    Mutant("kv/pool.py", "self.index.discard(block, content)", "pass", "an evicted block is still found"),
    Mutant("kv/pool.py", "block.content = None", "pass", "an unpublished block still counts as cached"),
]

POLICY = [
    Mutant("kv/policy.py", "self._free.append(free)", "self._free.prepend(free)", "free blocks re-used newest first"),
    Mutant(
        "kv/policy.py", "self._cached.append(cached)", "self._cached.prepend(cached)", "the newest content is evicted"
    ),
    Mutant(
        "kv/policy.py",
        "if count <= free:",
        "if count < free:",
        "nothing: an exact fit goes the longer way",
        equivalent="all free blocks and no cached one are the same blocks in the same order",
    ),
    Mutant(
        "kv/policy.py",
        "return self._free.take(free) + self._cached.take(count - free)",
        "return self._cached.take(count - free) + self._free.take(free)",
        "evicted blocks come before free ones in a table",
    ),
    Mutant(
        "kv/policy.py",
        "(self._free if block.content is None else self._cached).remove(block)",
        "self._free.remove(block)",
        "a revived block is counted out of the wrong list",
    ),
    Mutant("kv/policy.py", "self._queue.append(blocks)", "self._queue.prepend(blocks)", "vllm-0.23 re-uses at once"),
    Mutant("kv/policy.py", "self._queue.prepend(free)", "self._queue.append(free)", "vllm-0.24 queues free blocks"),
    Mutant(
        "kv/policy.py",
        "free = [block for block in blocks if block.content is None]",
        "free = [block for block in reversed(blocks) if block.content is None]",
        "free blocks of a partly cached table return first block first",
    ),
    Mutant("kv/policy.py", "if block.content is not None:", "if block.content is None:", "full tables return as free"),
]

FREELIST = [
    Mutant(
        "kv/freelist.py",
        "self._link(self._ring.prev, blocks, self._ring)",
        "self._link(self._ring, blocks, self._ring.next)",
        "appending goes to the front",
    ),
    Mutant("kv/freelist.py", "before = block", "pass", "of several linked blocks one stays"),
    Mutant("kv/freelist.py", "after.prev = before", "pass", "the chain is broken backwards", inside="remove"),
    Mutant("kv/freelist.py", "before.next = after", "pass", "a removed block is still in the chain", inside="remove"),
    Mutant("kv/freelist.py", "self._size += len(blocks)", "self._size += 1", "a returned table counts as one block"),
    Mutant("kv/freelist.py", "block.prev = ring", "pass", "the new front is tied to a block that was given out"),
    Mutant("kv/freelist.py", "self._size -= count", "pass", "given out and still counted as reclaimable"),
    Mutant(
        "kv/freelist.py",
        "block.prev = block.next = None",
        "pass",
        "nothing: a removed block keeps its old neighbours",
        equivalent="linking sets both before anybody reads them, and taking does not clear them either",
    ),
]

MANAGER = [
    Mutant(
        "kv/manager.py",
        "most = (len(table.tokens) - 1) // self.block_size",
        "most = len(table.tokens) // self.block_size",
        "a hit may cover every token",
    ),
    Mutant(
        "kv/manager.py",
        "if self.prefix_caching and not table.skip_lookup:",
        "if self.prefix_caching:",
        "a request that asked not to read the cache reads it",
    ),
    Mutant(
        "kv/manager.py",
        "break",
        "continue",
        "nothing: a lookup goes on behind a missing block",
        equivalent="whatever is findable has its parent findable (I7), so nothing behind a missing block is found",
    ),
    Mutant(
        "kv/manager.py",
        "for identity in table.chain(most)[:most]:",
        "for identity in reversed(table.chain(most)[:most]):",
        "a prefix is looked for from its end",
    ),
    Mutant(
        "kv/manager.py",
        "revived = sum(1 for block in found if not block.owners)",
        "revived = len(found)",
        "admission counts shared live blocks as needed",
    ),
    Mutant(
        "kv/manager.py",
        "return -(-tokens // self.block_size)",
        "return tokens // self.block_size",
        "a partial last block is forgotten",
    ),
    Mutant(
        "kv/manager.py",
        "return -(-tokens // self.block_size)",
        "return tokens // self.block_size + 1",
        "an exact number of blocks is rounded up",
    ),
    Mutant(
        "kv/manager.py",
        "needed = self.blocks_for(tokens) - len(hit.blocks) + hit.revived",
        "needed = self.blocks_for(tokens) - len(hit.blocks)",
        "admission forgets that revived blocks are no longer reclaimable",
    ),
    Mutant(
        "kv/manager.py",
        "return needed + spare <= len(self.pool.reclaimable)",
        "return needed + spare < len(self.pool.reclaimable)",
        "admission always leaves one block",
    ),
    Mutant(
        "kv/manager.py",
        "return needed + spare <= len(self.pool.reclaimable)",
        "return needed <= len(self.pool.reclaimable)",
        "the watermark is ignored",
    ),
    Mutant(
        "kv/manager.py",
        "if table.cached_tokens is None:",
        "if True:",
        "a resume overwrites the first admission's hit",
    ),
    Mutant(
        "kv/manager.py", "table.published = len(hit.blocks)", "table.published = 0", "hit blocks are published again"
    ),
    Mutant(
        "kv/manager.py",
        "table.publish_at = (table.published + 1) * self.block_size if self.prefix_caching else NEVER",
        "table.publish_at = (table.published + 2) * self.block_size if self.prefix_caching else NEVER",
        "the first block is findable one block late",
    ),
    Mutant("kv/manager.py", "if slots > table.capacity:", "if slots >= table.capacity:", "taking no block is an act"),
    Mutant(
        "kv/manager.py",
        "count = self.blocks_for(slots - table.capacity)",
        "count = self.blocks_for(slots)",
        "a growing table takes what it already has",
    ),
    Mutant(
        "kv/manager.py",
        "if count > len(self.pool.reclaimable):",
        "if count >= len(self.pool.reclaimable):",
        "the last reclaimable block is never taken",
    ),
    Mutant("kv/manager.py", "if slots >= table.publish_at:", "if slots > table.publish_at:", "findable one token late"),
    Mutant(
        "kv/manager.py",
        "fenced = sum(block.owners == 0 for blocks in self.pool.fenced.values() for block in blocks)",
        "fenced = sum(1 for blocks in self.pool.fenced.values() for block in blocks)",
        "fenced blocks that still have readers are waited for",
    ),
    Mutant(
        "kv/manager.py",
        "return self.blocks_for(slots - table.capacity) <= len(self.pool.reclaimable) + fenced",
        "return self.blocks_for(slots - table.capacity) < len(self.pool.reclaimable) + fenced",
        "just enough fenced blocks are not waited for",
    ),
    Mutant(
        "kv/manager.py",
        "full = min(table.slots, len(table.tokens)) // self.block_size",
        "full = table.slots // self.block_size",
        "a block is findable before its last token is known",
    ),
    Mutant(
        "kv/manager.py",
        "full = min(table.slots, len(table.tokens)) // self.block_size",
        "full = len(table.tokens) // self.block_size",
        "a block is findable before its writes are planned",
    ),
    Mutant(
        "kv/manager.py",
        "if table.published_in_step != self.step:",
        "if True:",
        "nothing: a second publication in a step restarts the note of what the step published",
        equivalent="a table is published at most once while a step is planned, and only then can it become a victim",
    ),
    Mutant(
        "kv/manager.py",
        "table.published_before_step = first",
        "table.published_before_step = full",
        "what a victim published in this step stays findable",
    ),
    Mutant("kv/manager.py", "parent = identities[i - 1] if i else ROOT", "parent = ROOT", "a block forgets its parent"),
    Mutant(
        "kv/manager.py",
        "table.publish_at = (full + 1) * size",
        "table.publish_at = (full + 2) * size",
        "every second block is findable late",
    ),
    Mutant("kv/manager.py", "self._unpublish_planned(table)", "pass", "a victim's unwritten blocks stay findable"),
    Mutant(
        "kv/manager.py",
        "self._unpublish(table, table.blocks[table.published_before_step : table.published])",
        "self._unpublish(table, table.blocks[: table.published])",
        "a victim's written blocks are forgotten too",
    ),
    Mutant("kv/manager.py", "table.preemptions += 1", "pass", "a resume counts as a first admission"),
    Mutant(
        "kv/manager.py",
        "if name in self._tables:",
        "if name in self._finished:",
        "two live requests share a name",
    ),
    Mutant("kv/manager.py", "self._finished.pop(name, None)", "pass", "a re-used name is explained by its last bearer"),
    Mutant("kv/manager.py", "del self._tables[table.name]", "pass", "a name is never free again"),
    Mutant(
        "kv/manager.py", "self._finished.popitem(last=False)", "self._finished.popitem()", "the newest end is forgotten"
    ),
    Mutant(
        "kv/manager.py",
        "if blocks := self.pool.lift_fence(step):",
        "if blocks := self.pool.lift_fence(self.step):",
        "the newest plan's fence is lifted instead of the committed one's",
    ),
    Mutant(
        "kv/manager.py",
        "if batch != self._batch:",
        "if len(batch) != len(self._batch):",
        "another batch of the same size is journalled under old names",
    ),
    Mutant(
        "kv/manager.py",
        "kind = acts.LookupKind.BYPASS",
        "kind = acts.LookupKind.FIRST",
        "bypasses dilute the hit rate",
    ),
    Mutant(
        "kv/manager.py",
        "revived = tuple(block.id for block in blocks if not block.owners)",
        "revived = ()",
        "the journal does not tell which blocks were revived",
    ),
    Mutant(
        "kv/manager.py",
        "if content is None or list(content.tokens) != table.tokens[i * size : (i + 1) * size]:",
        "if content is None:",
        "the debug mode compares no tokens",
    ),
    Mutant(
        "kv/manager.py",
        "stale = [block for block in blocks if block.content is not None]",
        "stale = []",
        "a block keeps its hash when it is taken for other tokens",
    ),
    Mutant(
        "kv/manager.py",
        "self.ledger.evicted(block.content.identity, self.step, table.name)",
        "self.ledger.evicted(block.content.parent, self.step, table.name)",
        "the miss ledger blames the wrong block",
    ),
    Mutant("kv/manager.py", "blocks = table.blocks[::-1]", "blocks = table.blocks[:]", "parents are evicted first"),
    Mutant(
        "kv/manager.py",
        "first, last = writing.start // self.block_size, self.blocks_for(writing.end)",
        "first, last = self.blocks_for(writing.start), self.blocks_for(writing.end)",
        "the partly filled block being written to is not fenced",
    ),
    Mutant(
        "kv/manager.py",
        "first, last = writing.start // self.block_size, self.blocks_for(writing.end)",
        "first, last = writing.start // self.block_size, writing.end // self.block_size",
        "the last, partial block being written to is not fenced",
    ),
    Mutant(
        "kv/manager.py",
        "first, last = writing.start // self.block_size, self.blocks_for(writing.end)",
        "first, last = 0, self.blocks_for(writing.end)",
        "blocks written long ago are fenced too",
    ),
    Mutant(
        "kv/manager.py",
        "self._unpublish(table, [block for block in held_back if block.content is not None])",
        "pass",
        "a fenced block outlives its parents in the cache",
    ),
    Mutant(
        "kv/manager.py",
        "self.ledger.withdrawn(block.content.identity, self.step, table.name)",
        "pass",
        "a withdrawn block is reported as 'never seen'",
    ),
    Mutant(
        "kv/manager.py",
        "self.journal.append(acts.Open(self.step, name, len(tokens), space_id(table.space)))",
        "self.journal.append(acts.Open(self.step, name, len(tokens), table.space))",
        "the journal holds the salt itself",
    ),
    Mutant(
        "kv/manager.py",
        "table.publish_at = NEVER",
        "pass",
        "nothing: a returned table keeps the mark at which it would publish",
        inside="_give_back",
        equivalent="it has no slots, so it never reaches the mark, and its next admission sets another",
    ),
]

IDENTITY = [
    Mutant(
        "kv/table.py", "parent = chain[-1] if chain else ROOT", "parent = ROOT", "the parent is left out of the hash"
    ),
    Mutant(
        "kv/table.py",
        "chain.append(identity(parent, self.tokens[i * size : (i + 1) * size], space))",
        'chain.append(identity(parent, self.tokens[i * size : (i + 1) * size], b""))',
        "the namespace is left out of the hash",
    ),
    Mutant(
        "kv/table.py",
        "chain.append(identity(parent, self.tokens[i * size : (i + 1) * size], space))",
        "chain.append(identity(parent, self.tokens[i * size : (i + 1) * size - 1], space))",
        "a block's last token is left out of the hash",
    ),
    Mutant(
        "kv/table.py",
        "self.plain = self.identities if not space else []",
        "self.plain = self.identities",
        "other namespaces' copies of the same tokens are not recognised",
    ),
    Mutant(
        "kv/identity.py",
        "return hashlib.sha256(parent + frame + space).digest()",
        "return hashlib.sha256(frame + space).digest()",
        "equal blocks behind different prefixes share a hash",
    ),
    Mutant(
        "kv/identity.py",
        "return hashlib.sha256(parent + frame + space).digest()",
        "return hashlib.sha256(parent + frame).digest()",
        "salts of one length share a hash",
    ),
    Mutant(
        "kv/identity.py",
        'frame = struct.pack(f"<QQ{len(tokens)}q", len(space), len(tokens), *tokens)',
        'frame = struct.pack(f"<QQ{len(tokens)}q", len(space), len(tokens), *sorted(tokens))',
        "the order of tokens does not count",
    ),
    Mutant(
        "kv/identity.py",
        'parts += [(b"a", adapter[0]), (b"v", adapter[1])]',
        'parts += [(b"a", adapter[0])]',
        "two versions of an adapter share blocks",
    ),
    Mutant(
        "kv/identity.py",
        'return b"".join(tag + struct.pack("<Q", len(text)) + text for tag, text in encoded)',
        'return b"".join(tag + text for tag, text in encoded)',
        "a crafted salt encodes like another salt with an adapter",
    ),
    Mutant(
        "kv/identity.py",
        'parts = [(b"s", salt)] if salt is not None else []',
        'parts = [(b"s", salt)] if salt else []',
        "an empty salt is none",
    ),
]

PREFIX = [
    Mutant(
        "kv/prefix.py", "return blocks[0] if blocks else None", "return blocks[-1] if blocks else None", "newest found"
    ),
    Mutant("kv/prefix.py", "blocks.remove(block)", "blocks.pop()", "another copy of an evicted block is forgotten"),
    Mutant("kv/prefix.py", "if not blocks:", "if True:", "one copy's eviction hides all copies"),
    Mutant(
        "kv/prefix.py",
        "return any(other != space for other in self._spaces.get(plain, ()))",
        "return bool(self._spaces.get(plain))",
        "a namespace's own blocks count as another's",
    ),
    Mutant(
        "kv/prefix.py",
        "spaces[content.namespace] = spaces.get(content.namespace, 0) + 1",
        "spaces[content.namespace] = 1",
        "copies within one namespace are not counted",
    ),
]

LEDGER = [
    Mutant("kv/ledger.py", "self._lost.move_to_end(identity)", "pass", "content evicted again is forgotten too soon"),
    Mutant(
        "kv/ledger.py",
        "if len(self._lost) > self._remembered:",
        "if len(self._lost) >= self._remembered:",
        "one lost block less than promised is remembered",
    ),
    Mutant("kv/ledger.py", "self._forgot = True", "pass", "claims 'never seen' of what it may have forgotten"),
    Mutant(
        "kv/ledger.py",
        "self._lost.pop(identity, None)",
        "pass",
        "contents that are back crowd lost ones out of the memory",
    ),
    Mutant(
        "kv/ledger.py",
        "self._lose(identity, Loss(MissReason.WITHDRAWN, step, by))",
        "self._lose(identity, Loss(MissReason.EVICTED, step, by))",
        "a withdrawn block is called evicted",
    ),
    Mutant(
        "kv/ledger.py",
        "self.hits[lookup.kind] = HitCount(count.requests + 1, count.asked + lookup.asked, count.hit + lookup.hit)",
        "self.hits[lookup.kind] = HitCount(count.requests + 1, count.asked + lookup.asked, count.hit + lookup.asked)",
        "everything asked for counts as hit",
    ),
    Mutant(
        "kv/ledger.py",
        "self.missed[miss.reason] = self.missed.get(miss.reason, 0) + miss.tokens",
        "self.missed[miss.reason] = miss.tokens",
        "missed tokens are not summed",
    ),
    Mutant(
        "kv/ledger.py",
        "misses = [self._explain_block(table, block) for block in range(hit_blocks, asked // size)]",
        "misses = [self._explain_block(table, block) for block in range(hit_blocks + 1, asked // size)]",
        "the first missed block has no reason, so the sum is short",
    ),
    Mutant("kv/ledger.py", "if asked % size:", "if asked % size > 1:", "a tail of one token has no reason"),
    Mutant(
        "kv/ledger.py",
        "if identity in self._index:  # findable and yet not hit: it ends with the request's last token",
        "if False:",
        "the last-block rule is reported as 'never seen'",
    ),
    Mutant(
        "kv/ledger.py",
        "if self._index.elsewhere(table.plain_chain(block + 1)[block], table.space):",
        "if False:",
        "another salt's copy is reported as 'never seen'",
    ),
    Mutant(
        "kv/ledger.py",
        "return (Miss(MissReason.BYPASS, asked, 0),)",
        "return (Miss(MissReason.BYPASS, asked - 1, 0),)",
        "a bypass's reasons do not sum to its tokens",
    ),
    Mutant(
        "kv/ledger.py",
        "for _, run in groupby(misses, key=lambda miss: (miss.reason, miss.step, miss.by)):",
        "for _, run in groupby(misses, key=lambda miss: miss.reason):",
        "evictions of different steps are told as one",
    ),
    Mutant(
        "kv/ledger.py",
        "yield replace(first, tokens=first.tokens + sum(miss.tokens for miss in rest))",
        "yield first",
        "a run of missed blocks counts as its first",
    ),
]

JOURNAL = [
    Mutant(
        "kv/journal.py",
        "return self._base.acts + len(self._acts)",
        "return len(self._acts)",
        "acts that were folded away are not counted",
    ),
    Mutant("kv/journal.py", "if number < self.folded:", "if number <= self.folded:", "the oldest held act is refused"),
    Mutant(
        "kv/journal.py",
        "return self._acts[number - self.folded :]",
        "return self._acts[number:]",
        "a reader of a bounded journal misses acts",
    ),
    Mutant(
        "kv/journal.py",
        "for act in self._acts[:surplus]:",
        "for act in self._acts[1:surplus]:",
        "the oldest act is dropped instead of folded",
    ),
    Mutant("kv/journal.py", "del self._acts[:surplus]", "del self._acts[: surplus - 1]", "an act is folded twice"),
    Mutant(
        "kv/journal.py",
        "for act in self._acts[: end - self.folded]:",
        "for act in self._acts:",
        "folding to an earlier act gives the present",
    ),
    Mutant(
        "kv/journal.py",
        "show: Show = plainly if show_identities else Veil()",
        "show: Show = plainly if not show_identities else Veil()",
        "identities are written in the clear unless asked for",
    ),
    Mutant(
        "kv/veil.py",
        "return msgspec.structs.replace(act, space=show(act.space))",
        "return act",
        "salts are written as hashes that can be guessed and tested",
    ),
    Mutant(
        "kv/veil.py",
        "return hashlib.blake2b(value, key=self._key, digest_size=16).digest() if value else value",
        "return hashlib.blake2b(value, digest_size=16).digest() if value else value",
        "hidden identities can be guessed and tested: there is no key",
    ),
    Mutant(
        "kv/journal.py",
        "for number, line in enumerate(file, start=2):",
        "for number, line in enumerate(file):",
        "a damaged line is misnumbered",
    ),
    Mutant(
        "kv/journal.py",
        'if (header.format, header.version) != ("pellucid.journal", VERSION):',
        'if header.format != "pellucid.journal":',
        "a journal of an unknown version is read",
    ),
    Mutant(
        "kv/journal.py",
        "show_identities = show_identities and not self.veiled",
        "pass",
        "a veiled journal saved again calls its veils identities",
    ),
    Mutant(
        "kv/journal.py",
        "by_place = left.veiled or right.veiled",
        "by_place = left.veiled and right.veiled",
        "a journal and its own veiled copy differ",
    ),
    Mutant(
        "kv/journal.py", "if len(left) != len(right):", "if False:", "a journal that ends early tells the same story"
    ),
]

FOLD = [
    Mutant(
        "kv/fold.py",
        "for block in reversed(free):  # the last one stacked is the first to be given out",
        "for block in free:",
        "stacked upside down",
    ),
    Mutant(
        "kv/fold.py",
        "home = self._cached if pool.state(block) is BlockState.CACHED else self._queue",
        "home = self._queue",
        "folding from a bounded journal's base mixes cached and free blocks",
    ),
    Mutant("kv/fold.py", "self._owners[block] += 1", "self._owners[block] = 1", "a folded shared block has one owner"),
    Mutant(
        "kv/fold.py",
        "usable = (block for block in act.blocks if not self._owners[block] and not self._fences[block])",
        "usable = (block for block in act.blocks if not self._owners[block])",
        "folded fenced blocks are reclaimable",
    ),
    Mutant("kv/fold.py", "if request.cached_tokens is None:", "if True:", "a folded resume overwrites the first hit"),
    Mutant("kv/fold.py", "request.preemptions = view.preemptions", "pass", "folding from a base forgets pre-emptions"),
]

TRAIL = [
    Mutant(
        "kv/trail.py", "if act.hit >= act.asked:", "if act.hit > act.asked:", "a hit on every token goes unnoticed (I8)"
    ),
    Mutant(
        "kv/trail.py",
        "if act.computed >= self._tokens[act.request]:",
        "if act.computed > self._tokens[act.request]:",
        "an admission with nothing to compute goes unnoticed (I8)",
    ),
    Mutant("kv/trail.py", "if count < 1:", "if count < 0:", "a planned row without tokens goes unnoticed (I8)"),
    Mutant(
        "kv/trail.py",
        "if self._owners[block] > 1 and self._shared[block] < step:  # in the step that fills it, others may join",
        "if self._owners[block] > 2 and self._shared[block] < step:",
        "writing to a block of two owners goes unnoticed (I4)",
    ),
    Mutant(
        "kv/trail.py",
        "if first < self._filled[block]:",
        "if first + 1 < self._filled[block]:",
        "writing the newest slot again goes unnoticed (I4)",
    ),
    Mutant("kv/trail.py", "self._filled[block] = 0", "pass", "a re-used block counts as written by its last owner"),
    Mutant(
        "kv/trail.py",
        "planned = act.step > self._last_launch  # the plan of this step is still being made",
        "planned = True",
        "publishing an unwritten block at a commit goes unnoticed (I5)",
    ),
    Mutant("kv/trail.py", "self._writing.pop(act.launched, None)", "pass", "committed steps count as still writing"),
    Mutant(
        "kv/trail.py",
        "if self._identities[block] is not None:",
        "if False:",
        "taking a findable block goes unnoticed (I6)",
    ),
    Mutant(
        "kv/trail.py",
        "for i in range(start // size, -(-end // size)):",
        "for i in range(start // size, end // size):",
        "writes to a partial last block are not followed",
    ),
    Mutant(
        "kv/trail.py",
        "self._filled[block] = min(size, request.slots - i * size)",
        "self._filled[block] = 0",
        "an auditor that joins in mid-run takes old writes for none",
    ),
]

INVARIANTS = [
    Mutant(
        "kv/invariants.py",
        "if listed[block] != expected:",
        "if listed[block] < expected:",
        "a held block in the order of re-use goes unnoticed (I1)",
    ),
    Mutant(
        "kv/invariants.py",
        "if owners != references[block]:",
        "if owners < references[block]:",
        "an owner too many goes unnoticed (I2)",
    ),
    Mutant(
        "kv/invariants.py",
        "if len(table) != expected:",
        "if len(table) < expected:",
        "a table too long goes unnoticed (I3)",
    ),
    Mutant(
        "kv/invariants.py",
        "if pool.taken - pool.returned != held:",
        "if pool.taken - pool.returned > held:",
        "a return too many goes unnoticed (I9)",
    ),
    Mutant(
        "kv/invariants.py",
        "if content is not None and content.parent != ROOT and content.parent not in kv.pool.index:",
        "if content is not None and content.parent != ROOT and content.parent is None:",
        "a findable block without its parent goes unnoticed (I7)",
    ),
    Mutant(
        "kv/invariants.py",
        "if identity(content.parent, content.tokens, content.namespace) != content.identity:",
        "if not content.identity:",
        "a hash that is not its content's goes unnoticed (I6)",
    ),
    Mutant(
        "kv/invariants.py", "if now != self._pool_memory:", "if now is None:", "a pool that moved goes unnoticed (I11)"
    ),
]

EXPLAIN = [
    Mutant(
        "kv/explain.py",
        "count = -(-miss.tokens // self.block_size)",
        "count = miss.tokens // self.block_size",
        "nothing: a run of missed blocks is counted by whole blocks",
        equivalent="every run is whole blocks but a short tail and a bypass, and their sentences count no blocks",
    ),
    Mutant(
        "kv/explain.py", "last = miss.block + count - 1", "last = miss.block + count", "one block too many is blamed"
    ),
    Mutant(
        "kv/explain.py",
        "return self.lookup.hit if self.lookup else 0",
        "return self.lookup.asked if self.lookup else 0",
        "asked for hit",
    ),
]

SNAPSHOT = [
    Mutant(
        "kv/snapshot.py", "return self.total - 1", "return self.total", "a snapshot counts the reserved block as usable"
    ),
    Mutant("kv/snapshot.py", "if self.fences[block]:", "if False:", "fenced blocks are shown as free"),
    Mutant("kv/snapshot.py", "return self.cached + self.free", "return self.free", "cached blocks are not reclaimable"),
    Mutant(
        "kv/snapshot.py",
        "len(table) * group.block_size - request.slots",
        "len(table) * group.block_size - request.tokens",
        "waste counts tokens that have no slot yet",
    ),
    Mutant(
        "kv/snapshot.py",
        "if request.name == name:",
        "if request.name.startswith(name):",
        "names are matched by their beginning",
    ),
]

SCHEDULER = [
    Mutant(
        "engine/scheduler.py",
        "self._spare = int(config.watermark * len(kv.pool.blocks))",
        "self._spare = int(config.watermark * len(kv.pool.blocks)) + 1",
        "the watermark is one block too high",
    ),
    Mutant(
        "engine/scheduler.py", "self._handles += 1", "self._handles = 1", "two submissions share a row of the runner"
    ),
    Mutant(
        "engine/scheduler.py",
        "return bool(self._live or self.launched)",
        "return bool(self._live)",
        "a step in flight counts as nothing to do",
    ),
    Mutant(
        "engine/scheduler.py",
        "draft.pressed = True",
        "pass",
        "a step that pre-empts admits as well",
        inside="_preempt",
    ),
    Mutant(
        "engine/scheduler.py",
        "draft.pressed = True",
        "pass",
        "the blocks that a running request waits for go to a new one",
        inside="_schedule_running",
    ),
    Mutant(
        "engine/scheduler.py",
        "while blocks is None and not self.kv.fenced_would_do(table, start + count):",
        "while blocks is None:",
        "everybody is pre-empted although fenced blocks are on their way",
    ),
    Mutant(
        "engine/scheduler.py", "self._released = []", "pass", "rows are released again in every plan", inside="schedule"
    ),
    Mutant(
        "engine/scheduler.py",
        "if plan.step != result.step or sum(plan.samples) != len(result.tokens):",
        "if plan.step != result.step:",
        "a result with too few tokens is taken",
    ),
    Mutant(
        "engine/scheduler.py",
        "if sequence.finish_reason is None  # else it ended (aborted, or stopped a step ago) while this step ran",
        "if True",
        "a request gets a token after its end",
    ),
    Mutant(
        "engine/scheduler.py",
        "if table.slots >= table.publish_at:",
        "if False:",
        "a block whose last token comes late is never published",
    ),
    Mutant(
        "engine/scheduler.py",
        "if len(self._live) < before:",
        "if False:",
        "an ended request keeps running",
    ),
    Mutant(
        "engine/scheduler.py",
        "while row < len(running) and draft.budget > 0:",
        "while row < len(running):",
        "nothing: the budget is not looked at before a running row",
        equivalent="each running request was admitted with budget left, only the last can need more than one token, "
        "and nobody is admitted while it does: the list ends before the budget",
    ),
    Mutant(
        "engine/scheduler.py",
        "if sequence.horizon >= sequence.limit:  # the token that ends it is already under way",
        "if sequence.horizon > sequence.limit:",
        "a step is planned past the limit",
    ),
    Mutant(
        "engine/scheduler.py",
        "if count > draft.budget:",
        "if False:",
        "the rest of a chunked prompt ignores the budget",
    ),
    Mutant(
        "engine/scheduler.py",
        "row -= self._preempt(victim, sequence, row, draft)",
        "self._preempt(victim, sequence, row, draft)",
        "a request is skipped after a victim that stood before it",
    ),
    Mutant(
        "engine/scheduler.py",
        "while self.waiting and draft.budget > 0 and len(self.running) < self.config.max_num_seqs:",
        "while self.waiting and draft.budget > 0 and len(self.running) <= self.config.max_num_seqs:",
        "one request too many runs",
    ),
    Mutant(
        "engine/scheduler.py",
        "while self.waiting and draft.budget > 0 and len(self.running) < self.config.max_num_seqs:",
        "while self.waiting and len(self.running) < self.config.max_num_seqs:",
        "requests are admitted without budget",
    ),
    Mutant(
        "engine/scheduler.py",
        "if sequence.pending:  # pre-empted while a launched step makes its next token: wait for that",
        "if False:",
        "a victim is admitted again before its last token is known",
    ),
    Mutant(
        "engine/scheduler.py",
        "spare = self._spare if self.running else 0",
        "spare = self._spare",
        "the watermark keeps out a request although nothing runs",
    ),
    Mutant(
        "engine/scheduler.py",
        "if not self.kv.fits(hit, len(sequence.tokens), spare):",
        "if not self.kv.fits(hit, min(len(sequence.tokens), hit.tokens + draft.budget), spare):",
        "admission asks for room for the first chunk only",
    ),
    Mutant(
        "engine/scheduler.py",
        "count = min(len(sequence.tokens) - hit.tokens, draft.budget)",
        "count = len(sequence.tokens) - hit.tokens",
        "a prompt ignores the budget",
    ),
    Mutant(
        "engine/scheduler.py", "return self.running[-1]", "return self.running[0]", "the oldest request is pre-empted"
    ),
    Mutant(
        "engine/scheduler.py",
        "return max(self.running, key=lambda sequence: sequence.rank)",
        "return min(self.running, key=lambda sequence: sequence.rank)",
        "the most urgent request is pre-empted",
    ),
    Mutant(
        "engine/scheduler.py",
        "return max(self.running, key=lambda sequence: sequence.rank)",
        "return max(self.running, key=lambda sequence: sequence.priority)",
        "of equal priorities the oldest is pre-empted",
    ),
    Mutant("engine/scheduler.py", "draft.strike(victim)", "pass", "a victim's row stays in the plan"),
    Mutant("engine/scheduler.py", "self._released.append(victim.handle)", "pass", "a victim's row stays in the runner"),
    Mutant(
        "engine/scheduler.py", "self.waiting.put_back(victim)", "self.waiting.add(victim)", "a victim goes to the back"
    ),
    Mutant(
        "engine/scheduler.py",
        "return position < row",
        "return position <= row",
        "nothing: a victim counts as standing before itself",
        equivalent="when the request at the row is its own victim, planning ends and the row is not used again",
    ),
    Mutant(
        "engine/scheduler.py",
        "self.kv.preempt(victim.table, by.table, self._writing(victim))",
        "self.kv.preempt(victim.table, by.table, None)",
        "a victim's blocks are not fenced",
    ),
    Mutant(
        "engine/scheduler.py",
        "self._released.append(sequence.handle)",
        "pass",
        "an ended request's row stays in the runner",
    ),
    Mutant(
        "engine/scheduler.py",
        "self.kv.close(sequence.table, reason, self._writing(sequence))",
        "self.kv.close(sequence.table, reason, None)",
        "an ended request's blocks are not fenced",
    ),
    Mutant(
        "engine/scheduler.py",
        "for launched in self.launched:",
        "for launched in list(self.launched)[:1]:",
        "of two steps that write to a request only the older is waited for",
    ),
    Mutant(
        "engine/scheduler.py",
        "start = min(writing.start, plan.starts[row]) if writing else plan.starts[row]",
        "start = plan.starts[row]",
        "of two steps that write to a request only the newer's blocks are fenced",
    ),
    Mutant(
        "engine/scheduler.py",
        "writing = Writing(plan.step, start, plan.starts[row] + plan.counts[row])",
        "writing = Writing(plan.step, start, plan.starts[row] + plan.counts[row] - 1)",
        "the last token being written is not fenced",
    ),
    Mutant(
        "engine/scheduler.py", "if length >= longest:", "if length > longest:", "a prompt of max_model_len is accepted"
    ),
    Mutant(
        "engine/scheduler.py",
        "return longest if most is None else min(length + most, longest)",
        "return longest if most is None else length + most",
        "max_tokens reaches beyond max_model_len",
    ),
    Mutant(
        "engine/scheduler.py",
        "if tokens and (min(tokens) < 0 or max(tokens) >= top):",
        "if tokens and (min(tokens) < 0 or max(tokens) > top):",
        "the first token id outside the vocabulary is accepted",
    ),
    Mutant(
        "engine/scheduler.py",
        "needed, usable = self.kv.blocks_for(limit - 1), self.kv.pool.usable",
        "needed, usable = self.kv.blocks_for(limit), self.kv.pool.usable",
        "a request that just fits is refused",
    ),
    Mutant(
        "engine/scheduler.py",
        "if needed > usable:",
        "if needed > usable + 1:",
        "a request that can never fit is accepted",
    ),
    Mutant(
        "engine/scheduler.py",
        "room = usable * self.kv.block_size + 1 - len(request.prompt)",
        "room = usable * self.kv.block_size - len(request.prompt)",
        "the advice is one token too small",
    ),
]

SEQUENCE = [
    Mutant(
        "engine/sequence.py",
        "self.stop_ids = frozenset(sampling.stop_token_ids) | frozenset(() if sampling.ignore_eos else eos)",
        "self.stop_ids = frozenset(sampling.stop_token_ids) | frozenset(eos)",
        "ignore_eos is ignored",
    ),
    Mutant(
        "engine/sequence.py",
        "self.stop_from = self.prompt_len + sampling.min_tokens",
        "self.stop_from = self.prompt_len + sampling.min_tokens + 1",
        "one token more than min_tokens is demanded",
    ),
    Mutant(
        "engine/sequence.py",
        "if token in self.stop_ids and length >= self.stop_from:",
        "if token in self.stop_ids:",
        "a request stops before min_tokens",
    ),
    Mutant(
        "engine/sequence.py",
        "elif length >= self.limit:",
        "elif length > self.limit:",
        "a request never ends by length",
    ),
    Mutant(
        "engine/sequence.py",
        "return self.horizon - len(self.tokens)",
        "return self.horizon - self.prompt_len",
        "tokens that came still count as under way",
    ),
    Mutant(
        "engine/sequence.py",
        "if token in self.request.sampling.stop_token_ids:",
        "if True:",
        "the model's end token is given as a stop reason",
    ),
    Mutant(
        "engine/sequence.py",
        "return (self.request.priority, self.handle)",
        "return (self.request.priority, -self.handle)",
        "of equal priorities the latest goes first",
    ),
]

DRAFT = [
    Mutant(
        "engine/draft.py",
        "samples = start + count == sequence.horizon",
        "samples = start + count == len(sequence.tokens)",
        "a step planned ahead does not sample",
    ),
    Mutant(
        "engine/draft.py",
        "samples = start + count == sequence.horizon",
        "samples = True",
        "a chunk of a prompt samples a token",
    ),
    Mutant(
        "engine/draft.py",
        "sequence.horizon += 1",
        "sequence.horizon = len(sequence.tokens) + 1",
        "two tokens under way count as one",
    ),
    Mutant("engine/draft.py", "self.budget -= count", "pass", "every row has the whole budget"),
    Mutant(
        "engine/draft.py",
        "self.budget += self.counts[row]",
        "pass",
        "a victim's tokens are not given back to the budget",
    ),
    Mutant(
        "engine/draft.py",
        "sequence.horizon -= self.samples[row]",
        "pass",
        "a struck row's token still counts as under way",
    ),
    Mutant(
        "engine/draft.py",
        "self.new_blocks.pop(sequence.handle, None)",
        "pass",
        "a victim's new blocks reach the runner",
    ),
    Mutant(
        "engine/draft.py", "tuple(sequence.tokens),", "sequence.request.prompt,", "a resumed request loses its output"
    ),
]

QUEUE = [
    Mutant(
        "engine/queue.py", "self._queue.append(sequence)", "self._queue.appendleft(sequence)", "last come, first served"
    ),
    Mutant(
        "engine/queue.py",
        "self._queue.appendleft(sequence)",
        "self._queue.append(sequence)",
        "a victim queues at the back",
    ),
    Mutant(
        "engine/queue.py",
        "bisect.insort(self._queue, sequence, key=lambda other: other.rank)",
        "self._queue.append(sequence)",
        "priorities do not count while waiting",
    ),
    Mutant(
        "engine/queue.py",
        "return self._queue.pop(0)",
        "return self._queue.pop()",
        "the least urgent request is admitted",
    ),
]

CORE = [
    Mutant(
        "engine/core.py",
        "ahead = 1 if self.asynchronous and plan.handles else 0",
        "ahead = 1 if self.asynchronous else 0",
        "the last step in flight is never committed",
    ),
    Mutant(
        "engine/core.py",
        "ahead = 1 if self.asynchronous and plan.handles else 0",
        "ahead = 0",
        "asynchronous scheduling is not asynchronous",
    ),
    Mutant(
        "engine/core.py",
        "return self._commit_down_to(0)",
        "return self._commit_down_to(1)",
        "draining leaves a step in flight",
    ),
]

MOVES = [
    Mutant(
        "kv/pool.py",
        "to.owners, block.owners = block.owners, 0",
        "to.owners, block.owners = 1, 0",
        "a moved block has lost all but one of its owners",
    ),
    Mutant("kv/pool.py", "self.index.replace(block, to, block.content)", "pass", "moved content is found where it was"),
    Mutant(
        "kv/pool.py",
        "to.content, block.content = block.content, None",
        "to.content = block.content",
        "what a move leaves behind counts as cached",
    ),
    Mutant("kv/pool.py", "if fence:", "if False:", "a block is re-used while it is still written to", inside="move"),
    Mutant(
        "kv/pool.py",
        "if not block.fence:  # else it was fenced now, or when the request that writes to it left",
        "if not fence:",
        "a block whose writer left is reclaimable as soon as its readers are moved away",
    ),
    Mutant(
        "kv/prefix.py",
        "blocks[blocks.index(block)] = by",
        "blocks.remove(block); blocks.append(by)",
        "a moved block counts as the newest of its equals",
    ),
    Mutant(
        "kv/manager.py",
        "fence = max((what.step for table, what in writes if block in self._written(table, what)), default=0)",
        "fence = max((what.step for table, what in writes), default=0)",
        "blocks written long ago are fenced when they are moved",
    ),
    Mutant(
        "kv/manager.py",
        "if target.content is not None:",
        "if False:",
        "what a move overwrites is still found",
    ),
    Mutant("kv/manager.py", "for table in owners:", "for table in owners[:1]:", "other owners keep the old block"),
    Mutant(
        "kv/manager.py",
        "deeper = next((b.id for b in blocks if b.content and b.content.parent == content.identity), None)",
        "deeper = None",
        "a move evicts a parent before its children",
    ),
    Mutant(
        "kv/manager.py",
        "if state not in (BlockState.FREE, BlockState.CACHED):",
        "if state in (BlockState.RESERVED, BlockState.HELD):",
        "a block is moved to where a launched step still writes",
    ),
    Mutant(
        "kv/manager.py",
        "if state is not BlockState.HELD:",
        "if state is BlockState.RESERVED:",
        "blocks that nobody holds can be moved",
    ),
    Mutant("kv/fold.py", "self._order.remove((to,))", "pass", "the fold: a move's target stays reclaimable"),
    Mutant("kv/fold.py", "if act.fence:", "if False:", "the fold: a move's source is never fenced"),
    Mutant(
        "kv/fold.py",
        "if not self._fences[block]:",
        "if not act.fence:",
        "the fold: a source fenced earlier is reclaimable at once",
    ),
    Mutant("kv/trail.py", "if to in blocks:", "if False:", "I10 does not look at moves"),
    Mutant("kv/trail.py", "if self._owners[to]:", "if False:", "I4 does not look at moves"),
    Mutant("kv/trail.py", "if self._identities[to] is not None:", "if False:", "I6 does not look at moves"),
    Mutant(
        "kv/trail.py",
        "if (block in table) != (name in act.requests):",
        "if False:",
        "I2: a move may forget an owner",
    ),
    Mutant(
        "kv/trail.py",
        "self._filled[to], self._filled[block] = self._filled[block], 0",
        "pass",
        "false alarms about blocks that were filled before they were moved",
    ),
    Mutant(
        "engine/scheduler.py",
        "self._moves.append((block, to))",
        "pass",
        "the runner is not told of moves",
    ),
    Mutant("engine/scheduler.py", "self._moves = []", "pass", "blocks move again in every plan", inside="schedule"),
    Mutant("engine/draft.py", "copies=tuple(moves),", "copies=(),", "tables follow a move, and the KV does not"),
    Mutant("engine/draft.py", "moves=tuple(moves),", "moves=(),", "the KV follows a move, and tables do not"),
]

MUTANTS: list[Mutant] = [
    *POOL,
    *POLICY,
    *FREELIST,
    *MANAGER,
    *IDENTITY,
    *PREFIX,
    *LEDGER,
    *JOURNAL,
    *FOLD,
    *TRAIL,
    *INVARIANTS,
    *EXPLAIN,
    *SNAPSHOT,
    *SCHEDULER,
    *SEQUENCE,
    *DRAFT,
    *QUEUE,
    *CORE,
    *MOVES,
]
