"""The page of directories, for admins: their tokens, and the mappings of groups there to rights here."""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from approvals.errors import LastAdmin, NotConfirmable, UnknownToken
from approvals.people import accounts, mappings
from approvals.people import directories as registry
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import admins_only, form_text

DAYS = ("30", "90", "365")
_ACTS = {"confirm": mappings.confirm, "withdraw": mappings.withdraw}


class DirectoryTokenForm(PageForm):
    """A token for a new directory, or one more for a directory."""

    name = TypedField("Directory", help="A name of your choice, such as acme", required=True)
    days = TypedField("Expires", choices=[(days, f"after {days} days") for days in DAYS])


class MappingForm(PageForm):
    """A new mapping."""

    source = TypedField("From", "select")
    value = TypedField("Group there", help="Exactly as it is named. For a sign-in, leave it empty.")
    right = TypedField("Gives", "select")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        providers = settings.SIGNOFF_OIDC.values()
        sign_ins = [(row.giver, f"sign-in with {row.label}") for row in providers]
        self["source"].field.widget.choices = [(name, name) for name in mappings.sources()]
        groups = [(name, name) for name in accounts.all_groups()]
        self["right"].field.widget.choices = [*groups, *sign_ins]


@require_safe
@admins_only
def directories(request: HttpRequest) -> HttpResponse:
    """Show the directories, with what waits for a confirmation."""
    return _page(request)


@require_POST
@never_cache
@admins_only
def add_token(request: HttpRequest) -> HttpResponse:
    """Create a token. Only this answer ever shows it."""
    form = DirectoryTokenForm(request.POST, ids="token-")
    try:
        fields = form.read()
        days = int(fields["days"]) if fields["days"] in DAYS else 0
        token, plain = registry.create_token(
            fields["name"], days=days, actor=request.user.get_username()
        )
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal))
    context = {
        "section": "directories",
        "token": token,
        "plain": plain,
        "address": f"{settings.PUBLIC_URL}/scim/v2",
    }
    return render(request, "accounts/directory_token.html", context)


@require_POST
@admins_only
def revoke_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of a directory."""
    try:
        registry.revoke_token(token, actor=request.user.get_username())
    except UnknownToken as exc:
        raise Http404 from exc
    messages.success(request, f"Token {token} is revoked.")
    return redirect("directories")


@require_POST
@admins_only
def add_mapping(request: HttpRequest) -> HttpResponse:
    """Propose a mapping."""
    form = MappingForm(request.POST, ids="mapping-")
    try:
        mappings.propose(**form.read(), actor=request.user.get_username())
    except InvalidInput as refusal:
        return _page(request, form.refuse(refusal))
    messages.success(request, "It is proposed. A second admin must confirm it.")
    return redirect("directories")


@require_POST
@admins_only
def change_mapping(request: HttpRequest) -> HttpResponse:
    """Confirm a mapping, or withdraw it."""
    act = _ACTS.get(form_text(request.POST, "act"))
    if act is None:
        raise Http404
    mapping = [form_text(request.POST, field) for field in ("source", "value", "right")]
    try:
        act(*mapping, actor=request.user.get_username())
    except (NotConfirmable, LastAdmin, InvalidInput) as refusal:
        messages.error(request, refusal.detail)
    else:
        messages.success(request, "Done: the rights of the people have changed.")
    return redirect("directories")


def _page(request: HttpRequest, refused: PageForm | None = None) -> HttpResponse:
    context = {
        "section": "directories",
        "sources": mappings.views(request.user.get_username()),
        "address": f"{settings.PUBLIC_URL}/scim/v2",
        "form": DirectoryTokenForm(ids="token-").replaced_by(refused),
        "mapping_form": MappingForm(ids="mapping-").replaced_by(refused),
    }
    status = 422 if refused else 200
    return render(request, "accounts/directories.html", context, status=status)
