"""The client of Signoff: start runs, decide requests, follow a run, and put calls behind an approval."""

from signoff_client.client import AsyncSignoff as AsyncSignoff
from signoff_client.client import Signoff as Signoff
from signoff_client.errors import DecidedBefore as DecidedBefore
from signoff_client.errors import InvalidField as InvalidField
from signoff_client.errors import NoAnswer as NoAnswer
from signoff_client.errors import NotApproved as NotApproved
from signoff_client.errors import NotAuthenticated as NotAuthenticated
from signoff_client.errors import NotInTime as NotInTime
from signoff_client.errors import NotPermitted as NotPermitted
from signoff_client.errors import NotPossible as NotPossible
from signoff_client.errors import NotThere as NotThere
from signoff_client.errors import Refusal as Refusal
from signoff_client.errors import RunNotCompleted as RunNotCompleted
from signoff_client.errors import SignoffError as SignoffError
from signoff_client.errors import TooLateToDecide as TooLateToDecide
from signoff_client.gate import approved as approved
from signoff_client.routes import Approval as Approval
from signoff_client.routes import Gate as Gate
from signoff_client.routes import JournalEntry as JournalEntry
from signoff_client.routes import Page as Page
from signoff_client.routes import Run as Run
