"""The losses' keeper: which processes lost a run that they held, where in its journal, and when.

A run whose worker dies is taken over and goes on. One that keeps costing workers their life must be
told from those that happened to be in the same process, so every loss is evidence.
"""

# The part of the claim that notes whose lease ran out; `free` is the row as it was.
NOTE = """
    INSERT INTO runtime_loss (run_id, worker, host, process, position, isolated)
    SELECT free.id, free.worker, runtime_worker.host, runtime_worker.process, free.position,
        free.isolated
    FROM free LEFT JOIN runtime_worker ON runtime_worker.id = free.worker
    WHERE free.was_lost
"""
