"""Serves a result that is too big for a page as a file."""

import json

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from runtime.ports import wiring
from runtime.queries import blobs
from runtime.web.requests import actor_of


@require_safe
@login_required
def blob(request: HttpRequest, digest: str) -> HttpResponse:
    """Send JSON with secrets redacted, to people who may read a run that refers to it."""
    found = blobs.blob(wiring.access().readable_runs(actor_of(request)), digest)
    if found is None:
        raise Http404
    text = json.dumps(found[0], indent=2, ensure_ascii=False)
    name = f"result-{digest.removeprefix('sha256:')[:12]}.json"
    return HttpResponse(
        text,
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
