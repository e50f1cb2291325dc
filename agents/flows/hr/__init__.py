"""Agents of a personnel department."""

from agents.flows.hr.onboarding import hr_onboarding, hr_onboarding_single

__all__ = ["hr_onboarding", "hr_onboarding_single"]
