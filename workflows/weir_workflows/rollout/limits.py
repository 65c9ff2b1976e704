"""Sizes that bound a rollout's histories and the load it puts on what it changes."""

# Computes taken through their steps together, by one child workflow.
BATCH_SIZE = 100
# Computes whose switch is stored in one transaction and sent at once.
CHUNK_SIZE = 50
# Such chunks that this process works on at once: with more, thousands would be between wish and confirmation.
CHUNKS_AT_ONCE = 8
# Batches whose preflights this process does at once: with more, those first in line would wait for the last.
PREFLIGHTS_AT_ONCE = 8
# Computes that this process talks to at once: more cost more CPU a call and are no faster.
CALLS_AT_ONCE = 24
# And looks at beside that, before a switch and after it.
PROBES_AT_ONCE = 12
# Computes that this process restarts at once: each is disconnected while others' restarts slow its own.
RESTARTS_AT_ONCE = 4
# Batches of computes that are taken back at once.
BACK_AT_ONCE = 6
# Events after which a workflow goes on as new, with no batch under way.
HISTORY_EVENTS = 4_000
# Reasons named in one sentence; the others are counted.
EXAMPLES = 5
# A compute that could not be taken up is looked at again after so long.
AGAIN_SECONDS = 15.0
# No wait for a window of time, or for batches to end, is longer than this without a look.
LONGEST_WAIT_SECONDS = 3600.0
