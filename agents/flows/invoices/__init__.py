"""Agents of an accounts department: invoices from a folder, and what became of them by night."""

from agents.flows.invoices.booking import invoices
from agents.flows.invoices.report import invoice_report

__all__ = ["invoice_report", "invoices"]
