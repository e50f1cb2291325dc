"""Agents of an accounts department: one books invoices from a folder, one reports on them at night."""

from agents.flows.invoices.booking import invoices
from agents.flows.invoices.report import invoice_report

__all__ = ["invoice_report", "invoices"]
