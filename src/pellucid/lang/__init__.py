"""The languages that reports are told in. Imports nothing of Pellucid."""

from pellucid.lang.catalogue import LANGUAGES, preferred_language, told
from pellucid.lang.sentence import Sentence, say

__all__ = ["LANGUAGES", "Sentence", "preferred_language", "say", "told"]
