"""The evidence of one decision, as a file."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from approvals.errors import TamperedWith
from approvals.reads import approval_views, evidence
from approvals.rights import principals


@require_safe
@login_required
def download(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Send the signed decision. A request that does not verify has none."""
    approval = approval_views.approval(approval_id, actor=principals.actor_of(request.user))
    if approval.tampered:
        problem = TamperedWith(approval.tampered)
        return HttpResponse(problem.detail, "text/plain; charset=utf-8", status=problem.status)
    if not approval.is_signed:
        raise Http404
    answer = JsonResponse(evidence.read_evidence(approval), json_dumps_params={"indent": 1})
    answer["Content-Disposition"] = f'attachment; filename="decision-{approval.id}.json"'
    return answer
