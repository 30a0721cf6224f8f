"""A saved journal tells no more than was asked for, even after it has been read and saved again."""

from __future__ import annotations

from pathlib import Path

from model_free import Bench
from pellucid.kv import Journal, acts
from pellucid.kv.identity import namespace, space_id


def salted() -> Bench:
    bench = Bench(num_blocks=9)
    for name, salt in (("a", "pepper"), ("b", "pepper"), ("c", "chili"), ("d", None)):
        bench.run(name, range(10, 16), salt=salt)
    return bench


def test_a_salt_is_veiled_beyond_its_hash_which_could_be_guessed(tmp_path: Path) -> None:
    salted().kv.journal.save(tmp_path / "journal")
    a, b, c, d = (act.space for act in Journal.load(tmp_path / "journal") if isinstance(act, acts.Open))
    assert a == b
    assert len({a, c, d}) == 3
    assert d == b""
    assert not {a, c} & {space_id(namespace(salt, None)) for salt in ("pepper", "chili")}


def test_veils_are_never_shown_as_identities(tmp_path: Path) -> None:
    salted().kv.journal.save(tmp_path / "veiled")
    Journal.load(tmp_path / "veiled").save(tmp_path / "again", show_identities=True)
    assert Journal.load(tmp_path / "again").veiled
