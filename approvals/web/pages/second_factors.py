"""Second factors: the second step of a login, the fresh one before a decision, and the forms to add and remove one.

The session says how its person proved who they are; `actor_of` passes that on. It is a time of Postgres.
"""

import hmac
from datetime import datetime, timedelta
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as log_in
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_http_methods, require_POST

from approvals import clock
from approvals.people import accounts, login, preferences, second_factors, sign_in
from approvals.rules.policy import is_fresh
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField, View
from runtime.web.requests import AUTHENTICATED, explain, read_text, redirect_with, users

BACKEND = "django.contrib.auth.backends.ModelBackend"
PASSWORD = "password"  # noqa: S105 - a way to log in
PENDING_TIME = timedelta(minutes=10)
SIGNED_IN = "oidc"  # the provider, its token for the log-out there, and the time
_PENDING = "second_factor"  # who gave the right password, and which page they want
_NEW_APP = "new_app"
_CHALLENGE = "passkey"


class ProofForm(PageForm):
    """The reader's password, which confirms a change of the account."""

    password = TypedField(
        "Your password", "password", autocomplete="current-password", required=True
    )


class AppForm(ProofForm):
    """A new authenticator app, with the code that it shows."""

    name = TypedField(
        "Name", initial="Authenticator app", maximum=second_factors.MAX_NAME, required=True
    )
    code = TypedField(
        "Code that the app shows", inputmode="numeric", autocomplete="one-time-code", required=True
    )


def check_proof(request: HttpRequest) -> None:
    """Raise InvalidInput naming `password` unless the form has the reader's. It is throttled like a login.

    Who has no password must have signed in at a provider, or given a second factor, just now.
    """
    me, password = _read_person(request), read_text(request.POST, "password")
    if not me.has_usable_password():
        if not _is_proved(request):
            raise InvalidInput("password", "is not set: sign in at your provider again")
    elif login.reauthenticate(request, me.get_username(), password) is None:
        is_throttled = login.find_refusal_end(request) is not None
        detail = "was wrong too often: try again later" if is_throttled else "is not your password"
        raise InvalidInput("password", detail)


def ask_proof(request: HttpRequest, template: str, **context: object) -> HttpResponse | None:
    """Return the page that asks for a proof of who the reader is; None if the form has it."""
    form = ProofForm()
    if request.method == "POST":
        try:
            check_proof(request)
            return None
        except InvalidInput as refusal:
            form = ProofForm(request.POST).refuse(refusal)
    context |= {"section": "account", **read_ways_to_confirm(request)}
    return _show_form(request, template, form, context)


def _require_proof(view: View) -> View:
    """Make an action that needs the proof. A refusal is a message on the account page."""

    @wraps(view)
    def act(request: HttpRequest, /, **address: Any) -> HttpResponse:
        try:
            check_proof(request)
            return view(request, **address)
        except InvalidInput as refusal:
            messages.error(request, f"Nothing was changed. {explain(refusal)}")
            return redirect("account")

    return act


def begin(request: HttpRequest, person: User, page: str, how: str) -> HttpResponse:
    """Ask a person for the second factor; `how` names the first."""
    request.session.cycle_key()
    request.session.set_expiry(int(PENDING_TIME.total_seconds()))
    request.session[_PENDING] = {
        "person": person.pk,
        "hash": person.get_session_auth_hash(),
        "page": page,
        "how": how,
        "until": (clock.read_time() + PENDING_TIME).isoformat(),
    }
    return redirect("second_factor")


@require_http_methods(["GET", "HEAD", "POST"])
def ask_second_factor(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor after the password, and log in."""
    person = _find_pending_person(request)
    if person is None:
        return redirect("login")
    template = "accounts/second_factor.html"
    context: dict[str, object] = {"person": person.get_username()}
    if request.method != "POST":
        return render(request, template, context)
    kind, problem = _check(request, person)
    if kind is None:
        until = login.find_refusal_end(request)
        context |= {"problem": problem, "locked_until": until}
        return render(request, template, context, status=429 if until else 422)
    with accounts.lock_people():
        if _find_pending_person(request) is None:  # disabled, or with another password meanwhile
            return redirect("login")
        pending = request.session.pop(_PENDING)
        log_in(request, person, backend=BACKEND)
        request.session.set_expiry(None)
        _note(request, pending["how"], kind)
        request.session.save()
    preferences.remember(request, preferences.read_time_preference(person.get_username()))
    return redirect(pending["page"])


@users.action
def step_up(request: HttpRequest) -> HttpResponse:
    """Check a fresh second factor, and go back to the page that asked for it."""
    kind, problem = _check(request, _read_person(request))
    if kind is not None:
        how = request.session.get(AUTHENTICATED, {}).get("how", PASSWORD)
        _note(request, how.partition("+")[0], kind)
        messages.success(request, "Confirmed. You can decide now.")
    else:
        messages.error(request, problem)
    return redirect(keep_own_page(request.POST.get("next", "")) or "account")


@users.form
def add_app(request: HttpRequest) -> HttpResponse:
    """Show the key of a new authenticator app, and add the app once it shows the right code."""
    me, form = _read_person(request), AppForm()
    new = second_factors.generate_app(me.get_username(), request.session.get(_NEW_APP))
    request.session[_NEW_APP] = new.sealed
    if request.method == "POST":
        form = AppForm(request.POST)
        try:
            check_proof(request)
            fields, keep = form.read(), str(request.session.session_key)
            codes = second_factors.add_app(
                me.get_username(), fields["name"], new.sealed, fields["code"], keep=keep
            )
            del request.session[_NEW_APP]
            return _answer_added(request, codes)
        except InvalidInput as refusal:
            form.refuse(refusal)
    import qrcode
    from qrcode.image.svg import SvgPathFillImage

    qr_code = qrcode.make(new.link, image_factory=SvgPathFillImage)
    context = {
        "section": "account",
        "new": new,
        "has_password": me.has_usable_password(),
        "picture": mark_safe(qr_code.to_string(encoding="unicode")),  # noqa: S308 - paths alone
    }
    return _show_form(request, "accounts/add_app.html", form, context)


@require_POST
def answer_passkey_options(request: HttpRequest) -> HttpResponse:
    """Answer what the browser needs to check a passkey, or to add one, and keep the challenge in the session."""
    from approvals.people import passkeys

    person = (
        _read_person(request) if request.user.is_authenticated else _find_pending_person(request)
    )
    if person is None:
        return redirect("login")
    if request.user.is_authenticated and request.POST.get("act") == "add":
        options, state = passkeys.begin_adding(person.get_username())
    else:
        options, state = passkeys.begin_check(person)
    request.session[_CHALLENGE] = state
    return JsonResponse(options)


@users.action
@_require_proof
def add_passkey(request: HttpRequest) -> HttpResponse:
    """Add the passkey that the browser made."""
    from approvals.people import passkeys

    codes = passkeys.add(
        request.user.get_username(),
        read_text(request.POST, "name"),
        request.session.pop(_CHALLENGE, None),
        read_text(request.POST, "passkey"),
        keep=str(request.session.session_key),
    )
    return _answer_added(request, codes)


@users.action
@_require_proof
def renew_codes(request: HttpRequest) -> HttpResponse:
    """Replace the recovery codes. This answer is the only page that ever shows them."""
    keep = str(request.session.session_key)
    return _answer_added(
        request, second_factors.renew_codes(request.user.get_username(), keep=keep)
    )


@users.action
@_require_proof
def remove_factor(request: HttpRequest, factor: UUID) -> HttpResponse:
    """Remove an app or a passkey of this person."""
    keep = str(request.session.session_key)
    name = second_factors.remove(request.user.get_username(), factor, keep=keep)
    message = f"{name} is removed. Your other sessions have ended."
    return redirect_with(request, message, "account")


def read_ways_to_confirm(request: HttpRequest) -> dict[str, object]:
    """Return the context of the form that asks the reader for a fresh second factor, or to confirm at a provider."""
    me = _read_person(request)
    issuers = sign_in.list_issuers(me.get_username()) if settings.SIGNOFF_OIDC else ()
    return {
        "has_password": me.has_usable_password(),
        "is_proved": _is_proved(request),
        "factors": second_factors.list_factors(me),
        "confirms_at": [row for row in settings.SIGNOFF_OIDC.values() if row.issuer in issuers],
    }


def keep_own_page(page: str) -> str:
    """Return a page to go to if it is a path of this site, else an empty text."""
    is_own = page.startswith("/") and url_has_allowed_host_and_scheme(page, allowed_hosts=None)
    return page if is_own else ""


def _check(request: HttpRequest, person: User) -> tuple[str | None, str]:
    """Return the kind of the factor that the form proves, None with a problem if it proves none."""
    if not login.count_code(request, person.get_username()):
        return None, "Too many wrong codes. Try again later."
    if answer := read_text(request.POST, "passkey"):
        from approvals.people import passkeys

        kind = passkeys.check(person, request.session.pop(_CHALLENGE, None), answer)
        problem = "The passkey is not one of yours, or its question was too old. Try again."
    else:
        kind = second_factors.use_code(person, read_text(request.POST, "code"))
        problem = "The code is wrong, or was used before."
    if kind is not None:
        login.forget_codes(person.get_username())
    return kind, problem


def _note(request: HttpRequest, how: str, kind: str) -> None:
    at = clock.to_wire(clock.read_time())
    request.session[AUTHENTICATED] = {"how": f"{how}+{kind}", "at": at}


def _find_pending_person(request: HttpRequest) -> User | None:
    """Return who may give the second factor in this session: the account and its password are as they were."""
    pending = request.session.get(_PENDING)
    if pending is None or datetime.fromisoformat(pending["until"]) <= clock.read_time():
        return None
    person = User.objects.filter(pk=pending["person"], is_active=True).first()
    if person is None:
        return None
    is_unchanged = hmac.compare_digest(person.get_session_auth_hash(), pending["hash"])
    return person if is_unchanged else None


def _is_proved(request: HttpRequest) -> bool:
    proofs = (request.session.get(key) for key in (SIGNED_IN, AUTHENTICATED))
    return any(is_fresh(proof, clock.read_time()) for proof in proofs)


def _read_person(request: HttpRequest) -> User:
    return accounts.read_person(request.user.get_username())


def _show_form(
    request: HttpRequest, template: str, form: PageForm, context: dict[str, object]
) -> HttpResponse:
    until = login.find_refusal_end(request)
    status = 429 if until else 422 if form.refusal else 200
    return render(
        request, template, {**context, "form": form, "locked_until": until}, status=status
    )


def _answer_added(request: HttpRequest, codes: list[str]) -> HttpResponse:
    if not codes:
        return redirect_with(request, "Added. Your other sessions have ended.", "account")
    context = {"section": "account", "codes": codes}
    return render(request, "accounts/recovery_codes.html", context)
