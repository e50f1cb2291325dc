"""Serves SCIM 2.0 to directories, each with a token of its own, which is good for nothing else.

The library is imported at the first request: most installations have no directory.
"""

import json

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from approvals.people import directories

_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
TYPE = "application/scim+json"


@csrf_exempt
def serve(request: HttpRequest, path: str) -> HttpResponse:
    """Answer a directory. A browser's session is not read, so there is nothing that a foreign page could use."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    directory = directories.authenticate(token) if scheme.lower() == "bearer" else None
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
            base_url=f"{settings.PUBLIC_URL}/scim/v2",
            path=f"/{path}",
            query=request.GET.dict(),
            headers=request.headers,
            body=sent,
        ),
    )
    body = b"" if answer.body is None else json.dumps(answer.body)
    return HttpResponse(body, status=answer.status, headers=answer.headers)


def _error(status: int, detail: str) -> HttpResponse:
    body = {"schemas": [_ERROR], "status": str(status), "detail": detail}
    return JsonResponse(body, status=status, content_type=TYPE)
