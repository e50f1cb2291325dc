"""The first page of admins: what needs them, runs by state, pending requests by age, and workers."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals.governance import version_changes
from approvals.reads import pending_ages, review_times
from runtime.ports import wiring
from runtime.reads import workers
from runtime.reads.blobs import object_totals
from runtime.reads.run_figures import limited_models, run_totals
from runtime.reads.suspects import suspect_totals
from runtime.web.requests import admins_only


@require_safe
@admins_only
def overview(request: HttpRequest) -> HttpResponse:
    """Show the counts of the installation, and the links to what an admin should look at."""
    live = workers.live_versions(workers.ALIVE)
    context = {
        "section": "overview",
        "at": timezone.now(),
        "totals": run_totals(),
        "suspects": suspect_totals(),
        "limited_models": limited_models(),
        "pending": pending_ages.count_pending(),
        "share": review_times.share(),
        "version_gates": version_changes.count(),
        "workers": workers.live_workers(workers.ALIVE),
        "late": workers.late_loops(),
        "store": object_totals(),
        "lags": [worker for worker in workers.worker_measures() if worker.is_alive],
        "without_worker": [name for name in wiring.catalogue().names() if name not in live],
    }
    return render(request, "approvals/overview.html", context)
