"""The size limits of all inputs, in one place. Every entry point refuses larger input, naming field and limit.

Sizes are bytes of compact JSON or characters of text. `json_values.require_json` checks text and numbers themselves;
JSON_DEPTH and MAX_INTEGER belong to it.
"""

JSON_DEPTH = 64  # nested lists and objects
MAX_INTEGER = 2**53 - 1  # RFC 7493; JSON readers disagree on larger ones

MAX_BODY = 2 * 1024 * 1024  # request to the web process
MAX_INPUT = 64 * 1024  # input of a run or a sub-agent
MAX_ARGS = 256 * 1024  # arguments of one call
MAX_RESULT = 4 * 1024 * 1024  # result of a tool
KEPT_INLINE = 64 * 1024  # result inside an event; a larger one is stored by its hash
PREVIEW = 400  # characters of a result that is stored elsewhere
MAX_REPORTED = 64 * 1024  # result that a person reports
MAX_REPLY = 1024 * 1024  # one reply of a model, with all its calls
MAX_INSTRUCTIONS = 64 * 1024  # characters of instructions that a function returns
MAX_SUMMARY = 64 * 1024  # characters of a summary of earlier messages
MAX_CALLS = 128  # in one reply
MAX_ITEMS = 200  # of a list, all in one reply
MAX_TOOL = 200  # characters of a tool's name as a model writes it
MAX_SENTENCE_VALUE = 200  # characters of an argument in the sentence of its call
MAX_ERROR = 2_000  # characters of an error text
MAX_REASON = 2_000  # characters of the reason for a decision or for ending a run
MAX_INQUIRY = 2_000  # characters of an inquiry
MAX_INQUIRIES = 10  # to an agent about one call
MAX_ANSWER = 8_000  # characters of the answer that are kept
MAX_MESSAGE = 16_000  # characters of a message to a run
MAX_UNDELIVERED = 20  # messages of a run that no model has received yet
MAX_EVENT_DATA = 32 * 1024  # data of an external event
MAX_EVENT_NAME = 200  # characters of an event's name or id
MAX_DELIVERY = 256 * 1024  # body of a delivery to a webhook
MAX_MATCH = 4 * 1024  # conditions of a wait on an event's data
MAX_WAIT_DAYS = 366  # days until a wait must end
MAX_MATCHED = 1_000  # waits that one event ends
MAX_KEY = 200  # characters of a business key
MAX_PLAN_ITEMS = 50  # of the plan that an agent keeps
MAX_PLAN_ITEM = 200  # characters of one of them
MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 50, 4_000  # of a summary that a run remembers
MAX_REMEMBERED = 50  # texts of earlier runs that a run remembers
MAX_REMEMBERED_TEXT = 4_000  # characters of one of them that are kept
MAX_MEMORY = 32_000  # characters of all of them; the oldest are left out
MAX_REMEMBERED_RUNS = 25  # earlier runs that a start reads
MAX_REMEMBERED_ENTRIES = 1_000  # journal entries of an earlier run; a longer one is not remembered
MAX_PERSON = 150  # characters of a person's name, as Django's users have
