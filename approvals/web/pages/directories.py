"""The page of directories, for admins: their tokens, and mappings of groups there to rights here; and their SCIM 2.0.

A token of a directory is good for SCIM alone. Its library is imported at the first request: most installations have no
directory.
"""

import json
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt

from approvals.errors import LastAdmin, NotConfirmable
from approvals.people import accounts, mappings
from approvals.people import directories as registry
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField, takes
from runtime.web.requests import admins, form_text, redirect_with

DAYS = ("30", "90", "365")
TYPE = "application/scim+json"
_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
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


def show(request: HttpRequest, refused: PageForm | None = None) -> HttpResponse:
    """Show the directories, with what waits for a confirmation; `refused` in place of the form as it is at first."""
    context = {
        "section": "directories",
        "sources": mappings.views(request.user.get_username()),
        "address": _address(),
        "form": DirectoryTokenForm(ids="token-").replaced_by(refused),
        "mapping_form": MappingForm(ids="mapping-").replaced_by(refused),
    }
    status = 422 if refused else 200
    return render(request, "accounts/directories.html", context, status=status)


directories = admins.page(show)


@admins.action
@takes(DirectoryTokenForm, show, ids="token-")
def add_token(request: HttpRequest, form: DirectoryTokenForm) -> HttpResponse:
    """Create a token. Only this answer ever shows it."""
    fields, actor = form.read(), request.user.get_username()
    days = int(fields["days"]) if fields["days"] in DAYS else 0
    token, plain = registry.create_token(fields["name"], days=days, actor=actor)
    context = {"section": "directories", "token": token, "plain": plain, "address": _address()}
    return render(request, "accounts/directory_token.html", context)


@admins.action
def revoke_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of a directory."""
    registry.revoke_token(token, actor=request.user.get_username())
    return redirect_with(request, f"Token {token} is revoked.", "directories")


@admins.action
@takes(MappingForm, show, ids="mapping-")
def add_mapping(request: HttpRequest, form: MappingForm) -> HttpResponse:
    """Propose a mapping."""
    mappings.propose(**form.read(), actor=request.user.get_username())
    message = "It is proposed. A second admin must confirm it."
    return redirect_with(request, message, "directories")


@admins.action
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
        return redirect("directories")
    return redirect_with(request, "Done: the rights of the people have changed.", "directories")


@csrf_exempt
def serve_scim(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a directory. A browser's session is not read, so there is nothing that a foreign page could use."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    directory = registry.authenticate(token) if scheme.lower() == "bearer" else None
    if directory is None:
        refused = _error(401, "Send a valid token of a directory.")
        refused["WWW-Authenticate"] = "Bearer"
        return refused
    try:
        sent = request.body
    except RequestDataTooBig:
        return _error(413, f"A body may have at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE} bytes.")
    from scim2_server.requests import ScimRequest

    from approvals.people import provisioning

    answer = provisioning.answer(
        directory,
        ScimRequest(
            method=request.method or "",
            base_url=_address(),
            path=f"/{path}",
            query=request.GET.dict(),
            headers=request.headers,
            body=sent,
        ),
    )
    body = b"" if answer.body is None else json.dumps(answer.body)
    return HttpResponse(body, status=answer.status, headers=answer.headers)


def _address() -> str:
    return f"{settings.PUBLIC_URL}/scim/v2"


def _error(status: int, detail: str) -> HttpResponse:
    body = {"schemas": [_ERROR], "status": str(status), "detail": detail}
    return JsonResponse(body, status=status, content_type=TYPE)
