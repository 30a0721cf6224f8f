"""The languages that reports are told in. Imports nothing of Pellucid."""

from pellucid.lang.catalogue import LANGUAGES, encoded, preferred_language, told
from pellucid.lang.lists import clauses, names_of, phrases, sentences
from pellucid.lang.sentence import Sentence, say

__all__ = [
    "LANGUAGES",
    "Sentence",
    "clauses",
    "encoded",
    "names_of",
    "phrases",
    "preferred_language",
    "say",
    "sentences",
    "told",
]
