"""Lists every address of the application and the pages for errors."""

import sys

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import include, path, re_path

from approvals.web.pages import directories
from config import api, mcp, mcp_gateway
from config.metrics import show_metrics
from runtime.errors import ObjectStoreDown
from runtime.reads.time_limits import TooLong
from runtime.store.pool import UNREACHABLE
from runtime.web.requests import choose_layout

urlpatterns = [
    path("api/v1/", api.api.urls),
    path("api/mcp/", mcp.serve),
    path("api/mcp/<str:gateway>/", mcp_gateway.serve, name="mcp-gateway"),
    path("api/aap/", include("approvals.web.api.aap")),
    re_path("^api/", api.answer_unknown_address),
    path("scim/v2/<path:path>", directories.serve_scim),
    path("metrics", show_metrics, name="metrics"),
    path("", include("approvals.web.urls")),
    path("", include("agents.web.views")),
    path("", include("runtime.web.urls")),
]
handler404 = "config.urls.not_found"
handler500 = "config.urls.broken"


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer 404, the same for a missing object and for one without permission to read it."""
    if _is_api(request):
        return api.answer_unknown_address(request)
    return render(request, "404.html", {"layout": choose_layout(request)}, status=404)


def broken(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected error. The page hides the cause and tells whether to try again."""
    fault = sys.exc_info()[1]
    if isinstance(fault, (*UNREACHABLE, ObjectStoreDown)):
        if _is_api(request):
            return api.answer_unavailable(request, fault)
        page = render_to_string("503.html", {"missing": api.name_missing_part(fault)})
        return HttpResponse(page, status=503)
    if isinstance(fault, TooLong):
        return HttpResponse(render_to_string("too_long.html"), status=503)
    if _is_api(request):
        return api.build_error(500, "internal", "Something went wrong. The error was recorded.")
    return HttpResponse(render_to_string("500.html"), status=500)


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith(("/api/", "/scim/"))
