"""The lab: claims about PagedAttention, put to the proof on a real engine.

`Subject` is what an engine must offer, a `Scenario` what is asked of it, a `Recording` what was seen,
a `Claim` judges recordings, a `Proof` is its verdict with scope and evidence. `prove` does it all.
"""
