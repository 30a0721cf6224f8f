"""Running a plan: rows of requests, the tensors of a step, the sampler, and the runners.

Nothing is imported here: `pellucid.runtime.forced` runs plans without torch.
"""
