"""Approvals as a Django app."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """The Django app of approvals."""

    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"
