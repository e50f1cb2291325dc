"""The page of directories, for admins: their tokens, and mappings of groups there to rights here; and their SCIM 2.0.

A token of a directory is good for SCIM alone. Its library is imported at the first request: most installations have no
directory.
"""

import json

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.csrf import csrf_exempt

from approvals.errors import LastAdmin, NotConfirmable
from approvals.people import accounts, mappings
from approvals.people import directories as registry
from runtime.errors import InvalidInput
from runtime.web.forms import PageForm, TypedField, take_form
from runtime.web.requests import admins, read_text, redirect_with

_ACTS = {"confirm": mappings.confirm, "withdraw": mappings.withdraw}


class DirectoryTokenForm(PageForm):
    """A token for a new directory, or one more for a directory."""

    name = TypedField("Directory", help="A name of your choice, such as acme", required=True)
    days = TypedField("Days until it expires", "integer", initial="365", required=True)


class MappingForm(PageForm):
    """A new mapping."""

    source = TypedField("From", "select")
    value = TypedField("Group there", help="Exactly as it is named. For a sign-in, leave it empty.")
    right = TypedField("Gives", "select")


def show(request: HttpRequest, refused: PageForm | None = None) -> HttpResponse:
    """Show the directories, with what waits for a confirmation; `refused` in place of the form as it is at first."""
    mapping_form = MappingForm(ids="mapping-").choose_shown_form(refused)
    mapping_form.offer("source", [(name, name) for name in mappings.list_sources()])
    sign_ins = [(row.giver, f"sign-in with {row.label}") for row in settings.SIGNOFF_OIDC.values()]
    mapping_form.offer("right", [*((name, name) for name in accounts.list_groups()), *sign_ins])
    context = {
        "section": "directories",
        "sources": mappings.list_rights_of_sources(request.user.get_username()),
        "address": _address(),
        "form": DirectoryTokenForm(ids="token-").choose_shown_form(refused),
        "mapping_form": mapping_form,
    }
    status = 422 if refused else 200
    return render(request, "accounts/directories.html", context, status=status)


directories = admins.guard_page(show)


@admins.action
@take_form(DirectoryTokenForm, show, ids="token-")
def add_token(request: HttpRequest, form: DirectoryTokenForm) -> HttpResponse:
    """Create a token. Only this answer ever shows it."""
    fields, actor = form.read(), request.user.get_username()
    token, plain = registry.create_token(fields["name"], days=fields["days"] or 0, actor=actor)
    context = {"section": "directories", "token": token, "plain": plain, "address": _address()}
    return render(request, "accounts/directory_token.html", context)


@admins.action
def revoke_token(request: HttpRequest, token: str) -> HttpResponse:
    """Revoke a token of a directory."""
    registry.revoke_token(token, actor=request.user.get_username())
    return redirect_with(request, f"Token {token} is revoked.", "directories")


@admins.action
@take_form(MappingForm, show, ids="mapping-")
def add_mapping(request: HttpRequest, form: MappingForm) -> HttpResponse:
    """Propose a mapping."""
    mappings.propose(**form.read(), actor=request.user.get_username())
    message = "It is proposed. A second admin must confirm it."
    return redirect_with(request, message, "directories")


@admins.action
def change_mapping(request: HttpRequest) -> HttpResponse:
    """Confirm a mapping, or withdraw it."""
    act = _ACTS.get(read_text(request.POST, "act"))
    if act is None:
        raise Http404
    mapping = [read_text(request.POST, field) for field in ("source", "value", "right")]
    try:
        act(*mapping, actor=request.user.get_username())
    except (NotConfirmable, LastAdmin, InvalidInput) as refusal:
        messages.error(request, refusal.detail)
        return redirect("directories")
    return redirect_with(request, "Done: the rights of the people have changed.", "directories")


@csrf_exempt
def serve_scim(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a directory. A browser's session is not read, so there is nothing that a foreign page could use."""
    from approvals.people import provisioning

    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    directory = registry.authenticate(token) if scheme.lower() == "bearer" else None
    answer = provisioning.answer_directory(directory, request, _address(), f"/{path}")
    body = b"" if answer.body is None else json.dumps(answer.body)
    return HttpResponse(body, status=answer.status, headers=answer.headers)


def _address() -> str:
    return f"{settings.PUBLIC_URL}/scim/v2"
