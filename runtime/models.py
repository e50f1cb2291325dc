"""The engine's tables: columns and constraints, no behaviour. Only the modules of `store` write them.

Runs are never deleted, so the tables that each flow writes have no foreign key to them: each would lock the run's row.
"""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models.functions import Now

from runtime.core.run.continuation import RunStatus


class Run(models.Model):
    """One execution of an agent on one input. `due_at` is the only column that processes poll."""

    id = models.UUIDField(primary_key=True)
    agent = models.TextField()
    requester = models.TextField()
    origin = models.JSONField(
        db_default=[]
    )  # a copy, with senders that no worker has journaled yet
    token = models.TextField(null=True)
    business_key = models.TextField(null=True)
    thread = models.TextField(null=True)  # the conversation that it belongs to
    input = models.TextField()  # JSON text, as given
    output = models.TextField(null=True)
    reason = models.TextField(null=True)  # why it failed or was quarantined
    awaits = models.TextField(null=True)  # the last answer of a provider that it waits for
    limited = models.JSONField(null=True)  # the model calls that wait for a rate limit
    awaits_store = models.TextField(
        null=True
    )  # why the object store is down, while it waits for it
    status = models.TextField(
        choices=[(status, status) for status in RunStatus], default=RunStatus.QUEUED
    )
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    position = models.BigIntegerField(db_default=0)
    head = models.TextField(db_default="")
    base = models.BigIntegerField(db_default=0)  # the position of its continuation, 0 without one
    due_at = models.DateTimeField(null=True)
    epoch = models.BigIntegerField(db_default=0)
    owner = models.UUIDField(null=True)
    idle_since = models.DateTimeField(db_default=Now())  # its start, or when it last lost its owner
    mailbox = models.BigIntegerField(db_default=0)
    unheard = models.IntegerField(db_default=0)  # received messages that no model has seen
    removed_at = models.DateTimeField(null=True)  # when retention erased its payloads
    archived_at = models.DateTimeField(null=True)  # when its payloads left for the archive
    legal_hold = models.JSONField(null=True)  # by, at and reason, while nothing may be erased
    worker = models.UUIDField(null=True)  # the process that claimed it last
    losses = models.IntegerField(db_default=0)  # leases lost in a row without progress
    isolated = models.BooleanField(db_default=False)  # suspected: a process for such runs tries it
    pushed = models.BooleanField(
        db_default=False
    )  # the sweeper sent a hint since the last progress

    class Meta:
        constraints = [
            models.UniqueConstraint(  # in Postgres an exclusion: runs without a key are not in it
                fields=["agent", "requester", "business_key"], name="run_business_key"
            ),
        ]
        indexes = [
            models.Index(
                fields=["due_at"], name="run_due", condition=models.Q(due_at__isnull=False)
            ),
            models.Index(
                fields=["due_at", "id"], name="run_suspected", condition=models.Q(isolated=True)
            ),
            models.Index(fields=["requester", "-id"], name="run_requester"),
            models.Index(
                fields=["ended_at"],
                name="run_to_remove",
                condition=models.Q(ended_at__isnull=False, removed_at__isnull=True),
            ),
            models.Index(
                fields=["idle_since"], name="run_idle", condition=models.Q(ended_at__isnull=True)
            ),
            models.Index(
                fields=["thread", "-id"],
                name="run_thread",
                condition=models.Q(thread__isnull=False),
            ),
        ]


class JournalEntry(models.Model):
    """One committed step: the exact bytes of its events and the MAC that chains it to the entry before."""

    pk = models.CompositePrimaryKey("run_id", "position")
    run_id = models.UUIDField()
    position = models.BigIntegerField()
    body = models.TextField()
    mac = models.TextField()
    key_id = models.TextField()
    commit_id = models.UUIDField()
    packed = models.BinaryField(null=True)  # MAC and compressed body, which are then empty

    class Meta:
        managed = False  # partitioned by range of run_id; made in SQL by the first migration


class Pruning(models.Model):
    """The position up to which a journal was deleted, with a MAC; `state` is a live run's continuation there."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.PROTECT)
    position = models.BigIntegerField()
    head = models.TextField()
    at = models.DateTimeField()
    mac = models.TextField()
    key_id = models.TextField()
    state = models.TextField(null=True)
    state_mac = models.TextField(null=True)
    state_key_id = models.TextField(null=True)


class StoredContinuation(models.Model):
    """The continuation of a suspended run, as the exact signed bytes; one live row per run."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.PROTECT)
    position = models.BigIntegerField()
    body = models.TextField()
    mac = models.TextField()
    key_id = models.TextField()


class CompactionBase(models.Model):
    """The continuation at which a compacted run's journal may begin, as the exact signed bytes."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.PROTECT, related_name="+")
    position = models.BigIntegerField()
    body = models.TextField()
    mac = models.TextField()
    key_id = models.TextField()
    at = models.DateTimeField(db_default=Now())


class StoredBlob(models.Model):
    """A blob: a result too big for an entry. `digest` is the hash of its exact bytes.

    If `body` is empty, they are in the object store under the key `place`.
    """

    digest = models.TextField(primary_key=True)
    body = models.TextField()
    place = models.TextField(null=True)
    size = models.BigIntegerField(null=True)  # in bytes, of one with a place
    used_at = models.DateTimeField(db_default=Now())  # when a step last referred to it
    source = models.UUIDField(null=True)  # the run whose text it is, if another one remembers it
    is_summary = models.BooleanField(db_default=False)  # of what `source` remembers

    class Meta:
        indexes = [
            models.Index(
                fields=["source"],
                name="stored_blob_source",
                condition=models.Q(source__isnull=False),
            )
        ]


class DroppedObject(models.Model):
    """The key of an object whose row was deleted, until the sweeper has deleted the object."""

    place = models.TextField(primary_key=True)
    at = models.DateTimeField(db_default=Now())


class ArchivedRun(models.Model):
    """The file of an archived run in the object store. `place` is its key, `contents` are hashes."""

    run = models.OneToOneField(Run, primary_key=True, on_delete=models.PROTECT, related_name="+")
    place = models.TextField(null=True, unique=True)
    state = models.TextField()  # writing, archived or restored
    digest = models.TextField(db_default="")
    size = models.BigIntegerField(db_default=0)
    contents = ArrayField(models.TextField(), db_default=[])
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [GinIndex(fields=["contents"], name="archived_run_contents")]


class ArchivedEntries(models.Model):
    """A file in the object store with the removed entries `first` to `last` of a run; being written without `last`."""

    place = models.TextField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="+")
    first = models.BigIntegerField()
    last = models.BigIntegerField(null=True)
    digest = models.TextField(db_default="")
    size = models.BigIntegerField(db_default=0)
    at = models.DateTimeField(db_default=Now())


class BlobReference(models.Model):
    """A reference of a run's journal to a blob."""

    pk = models.CompositePrimaryKey("run_id", "blob_id")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, db_index=False)
    blob = models.ForeignKey(StoredBlob, on_delete=models.PROTECT)


class Gate(models.Model):
    """A gate at which a run waits for a person."""

    class State(models.TextChoices):
        OPEN = "open"  # undecided
        DECIDED = "decided"  # decided; its runner has not consumed the decision
        EFFECTIVE = "effective"  # the decision is in the journal
        CLOSED = "closed"  # its run ended before a decision, or before the decision took effect

    id = models.UUIDField(primary_key=True)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="gates", db_constraint=False
    )
    kind = models.TextField()
    frame = models.TextField()
    call = models.TextField()
    tool = models.TextField()
    path = models.JSONField()
    state = models.TextField(choices=State.choices, default=State.OPEN)
    opened_at = models.DateTimeField(db_default=Now())
    decided_at = models.DateTimeField(null=True)


class UsedApproval(models.Model):
    """An attempt that used an approval. A trigger refuses changes and deletions."""

    pk = models.CompositePrimaryKey("gate", "attempt")
    gate = models.UUIDField()
    attempt = models.IntegerField()
    run_id = models.UUIDField()  # no foreign key: the row must outlive the run's row
    at = models.DateTimeField(db_default=Now())


class LateOutcome(models.Model):
    """The late outcome of an attempt whose worker no longer had the run, under a MAC.

    A trigger refuses changes, and deletions while the run has its payloads.
    """

    pk = models.CompositePrimaryKey("run_id", "frame", "call", "attempt")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, db_index=False, related_name="+")
    frame = models.TextField()
    call = models.TextField()
    attempt = models.IntegerField()
    started_at = models.DateTimeField()  # by the intent of the attempt
    worker = models.UUIDField()
    at = models.DateTimeField()
    body = models.TextField()  # JSON text
    mac = models.TextField()
    key_id = models.TextField()


class StoredPartialReply(models.Model):
    """The part of a reply that a model is giving, under a MAC, for the case that the worker is lost."""

    pk = models.CompositePrimaryKey("run_id", "frame")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, db_index=False, related_name="+")
    frame = models.TextField()
    body = models.TextField()  # JSON text
    mac = models.TextField()
    key_id = models.TextField()


class Signal(models.Model):
    """A durable message to a run; the step that receives it deletes it. Its `id` has no index."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, db_constraint=False)
    kind = models.TextField()
    body = models.TextField()
    effective_at = models.DateTimeField(db_default=Now())


class WaitingCall(models.Model):
    """A call that waits for an external event; the transaction that ends the wait deletes the row."""

    pk = models.CompositePrimaryKey("run_id", "frame", "call")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, db_index=False)
    frame = models.TextField()
    call = models.TextField()
    event = models.TextField()
    match = models.JSONField()
    until = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["event", "run"], name="waiting_call_event")]


class ExternalEvent(models.Model):
    """An external event, once by its id. Its data is in the journals of the runs that waited for it."""

    id = models.TextField(primary_key=True)
    name = models.TextField()
    digest = models.TextField()  # of name and data
    waits = models.IntegerField()  # number of waits that it ended
    sent_by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["at"], name="external_event_at")]


class RunUsage(models.Model):
    """What a run has used up to `position` of its journal, as the sweeper counted it.

    `micros` is its cost in millionths of a US dollar, without the `unpriced` replies.
    """

    run_id = models.UUIDField(primary_key=True)
    position = models.BigIntegerField()
    replies = models.BigIntegerField()
    unpriced = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    micros = models.BigIntegerField()


class UncountedRun(models.Model):
    """A run that has entries which RunUsage does not count yet."""

    run_id = models.UUIDField(primary_key=True)


class DailyUsage(models.Model):
    """What the runs of an agent for one requester used of a model on a day (UTC). Columns as in RunUsage."""

    day = models.DateField()
    agent = models.TextField()
    model = models.TextField()
    requester = models.TextField()
    replies = models.BigIntegerField()
    unpriced = models.BigIntegerField()
    input_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    micros = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "agent", "model", "requester"], name="daily_usage_once"
            )
        ]


class DailyRuns(models.Model):
    """The number of runs that ended on a day (UTC), by status."""

    day = models.DateField(primary_key=True)
    statuses = models.JSONField()


class KillSwitch(models.Model):
    """A kill switch: until `lifted_at`, workers start no effect of this agent, or of any agent if it is empty."""

    agent = models.TextField()
    stopped_by = models.TextField(null=True)  # None is the command line
    token = models.TextField(null=True)  # the API token that was used
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())
    lifted_by = models.TextField(null=True)
    lifted_token = models.TextField(null=True)
    lifted_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent"],
                name="kill_switch_active",
                condition=models.Q(lifted_at__isnull=True),
            ),
        ]


class SweeperLoop(models.Model):
    """One of the sweeper's loops, and when it last completed in any sweeper."""

    name = models.TextField(primary_key=True)
    done_at = models.DateTimeField()
    took = models.FloatField(null=True)  # seconds of its last round


class LostLease(models.Model):
    """A lost lease: a worker lost this run, as the sweeper found it. Evidence that never changes."""

    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False)
    worker = models.UUIDField(null=True)
    host = models.TextField(null=True)
    process = models.IntegerField(null=True)
    position = models.BigIntegerField()
    isolated = models.BooleanField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["worker"], name="lost_lease_worker")]


class WorkerProcess(models.Model):
    """A process that advances runs, with its heartbeat and lease."""

    id = models.UUIDField(primary_key=True)
    host = models.TextField()
    process = models.IntegerField()
    agents = models.JSONField(db_default={})  # the version of each agent that it has, by name
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    lease_until = models.DateTimeField(db_default=Now())
    isolated = models.BooleanField(db_default=False)  # tries suspected runs
    hung = models.BooleanField(db_default=False)  # its tools hang; it ends and must be replaced
    measures = models.JSONField(db_default={})  # its counts since it started
    runs = ArrayField(models.UUIDField(), db_default=[])  # that it had at its last heartbeat


class ReceivedEvent(models.Model):
    """An event as it was received, under a MAC. `key` has the id of its ExternalEvent, or of a delivery."""

    seq = models.BigAutoField(primary_key=True)
    key = models.TextField(unique=True)
    source = models.TextField()
    event_id = models.TextField()
    name = models.TextField()
    subject = models.TextField()
    data = models.TextField()
    by = models.TextField(null=True)  # None is a webhook
    token = models.TextField(null=True)  # the API token that was used
    at = models.DateTimeField()
    mac = models.TextField()
    key_id = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["at"], name="received_event_at")]


class Trigger(models.Model):
    """What starts runs without a person: times or events. Its newest act says which runs."""

    id = models.UUIDField(primary_key=True)
    kind = models.TextField()
    name = models.TextField()
    agent = models.TextField()
    owner = models.TextField()
    event = models.TextField(db_default="")  # the name of its events
    state = models.TextField(db_default="active")  # active, paused or ended
    problem = models.TextField(db_default="")  # why it starts nothing although it is active
    next_at = models.DateTimeField(null=True)  # the first time that was not handled
    due_at = models.DateTimeField(null=True)  # when the sweeper looks at it
    not_before = models.DateTimeField(null=True)  # after an error
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at"], name="trigger_due", condition=models.Q(due_at__isnull=False)
            ),
            models.Index(
                fields=["event"], name="trigger_event", condition=models.Q(state="active")
            ),
            models.Index(fields=["owner"], name="trigger_owner"),
        ]


class TriggerAct(models.Model):
    """An act of a person on a trigger, with the trigger after it, under a MAC. It is never changed or deleted."""

    pk = models.CompositePrimaryKey("trigger", "seq")
    trigger = models.UUIDField()
    seq = models.IntegerField()
    act = models.TextField()
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    at = models.DateTimeField()
    body = models.TextField()
    mac = models.TextField()
    key_id = models.TextField()


class Occurrence(models.Model):
    """A time or an event of a trigger, and its outcome. There is one row for each, so it starts at most one run."""

    pk = models.CompositePrimaryKey("trigger", "number")
    trigger = models.UUIDField()
    number = (
        models.BigIntegerField()
    )  # microseconds of a time since 1970, or the seq of the ReceivedEvent
    kind = models.TextField()
    at = models.DateTimeField()
    state = models.TextField()
    key = models.TextField(db_default="")
    run = models.UUIDField(null=True)
    started_at = models.DateTimeField(null=True)
    reason = models.TextField(db_default="")
    by = models.TextField(null=True)  # the person of a manual time or a back-fill
    token = models.TextField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["trigger", "number"],
                name="occurrence_open",
                condition=models.Q(state__in=["new", "waiting", "started"]),
            ),
            models.Index(
                fields=["trigger", "key"],
                name="occurrence_running",
                condition=models.Q(state="started"),
            ),
            models.Index(
                fields=["trigger", "started_at"],
                name="occurrence_started",
                condition=models.Q(started_at__isnull=False),
            ),
            models.Index(
                fields=["trigger", "-number"],
                name="occurrence_failed",
                condition=models.Q(state="failed"),
            ),
            models.Index(
                fields=["run"], name="occurrence_run", condition=models.Q(run__isnull=False)
            ),
            models.Index(fields=["at"], name="occurrence_at", condition=models.Q(kind="event")),
        ]


class TriggerWebhook(models.Model):
    """The address of a trigger, by its hash, and the deliveries that were refused there."""

    trigger = models.UUIDField(primary_key=True)
    address = models.TextField(unique=True)
    refused = models.IntegerField(db_default=0)
    refused_at = models.DateTimeField(null=True)
    refused_why = models.TextField(db_default="")


class TriggerSource(models.Model):
    """What a trigger reads, and the last look at it. The newest act of the trigger names it."""

    trigger = models.UUIDField(primary_key=True)
    kind = models.TextField()
    place = models.TextField()
    looked_at = models.DateTimeField(null=True)
    problem = models.TextField(db_default="")  # why the look after it did not succeed
    cursor = models.TextField(db_default="")  # the name after which the next look begins
    not_before = models.DateTimeField(null=True)  # after a store did not answer


class WatchedFile(models.Model):
    """A file of a watched folder, as a look saw it."""

    pk = models.CompositePrimaryKey("trigger", "folder", "name")
    trigger = models.UUIDField()
    folder = models.TextField()
    name = models.TextField()
    stamp = models.TextField()  # inode, size and times
    seen_at = models.DateTimeField()  # when a look first saw this stamp
    done = models.BooleanField(db_default=False)  # it was taken or refused
    digest = models.TextField(db_default="")  # of the content that was taken last
    gone_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["trigger"],
                name="watched_file_there",
                condition=models.Q(gone_at__isnull=True),
            ),
        ]


class PromptTrial(models.Model):
    """A trial of a version of a prompt on recorded runs. At most one of each prompt has not ended."""

    id = models.UUIDField(primary_key=True)
    prompt = models.TextField()
    number = models.IntegerField()  # of the version, 0 for the text in the code
    wanted = models.IntegerField()  # runs
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    at = models.DateTimeField(db_default=Now())
    state = models.TextField()  # queued, running, done or failed
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    runs = ArrayField(models.UUIDField(), db_default=[])  # that were tried so far
    result = models.TextField(db_default="[]")  # JSON text, their replies without secrets
    problem = models.TextField(db_default="")  # why it ended early

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["prompt"],
                name="prompt_trial_at_once",
                condition=models.Q(ended_at__isnull=True),
            ),
        ]


class RunReplay(models.Model):
    """A replay of a run with today's code. At most one of each run has not ended."""

    id = models.UUIDField(primary_key=True)
    run = models.UUIDField()
    by = models.TextField()
    token = models.TextField(null=True)  # the API token that was used
    at = models.DateTimeField(db_default=Now())
    state = models.TextField()  # queued, running, done or failed
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    host = models.TextField(db_default="")  # of the worker
    process = models.IntegerField(null=True)
    compared = models.BigIntegerField(db_default=0)  # entries so far
    entries = models.BigIntegerField(db_default=0)  # that the run had then
    result = models.TextField(db_default="")  # JSON text, without secrets
    problem = models.TextField(db_default="")  # why it ended early

    class Meta:
        indexes = [models.Index(fields=["run"], name="run_replay_of")]
        constraints = [
            models.UniqueConstraint(
                fields=["run"],
                name="run_replay_at_once",
                condition=models.Q(ended_at__isnull=True),
            ),
        ]


class EditPreview(models.Model):
    """A preview of the call at a gate with the arguments that a person gives. A person has one for each gate."""

    id = models.UUIDField(primary_key=True)
    run = models.UUIDField()
    gate = models.UUIDField()
    by = models.TextField()
    args = models.TextField()  # JSON text, with sealed secrets
    at = models.DateTimeField(db_default=Now())
    state = models.TextField()  # queued, running, done or failed
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    result = models.TextField(db_default="")  # JSON text, without secrets
    mac = models.TextField(db_default="")  # of the worker, over the arguments and the result
    key_id = models.TextField(db_default="")
    problem = models.TextField(db_default="")  # why it has no result

    class Meta:
        indexes = [models.Index(fields=["run"], name="edit_preview_of")]
        constraints = [models.UniqueConstraint(fields=["gate", "by"], name="edit_preview_once")]
