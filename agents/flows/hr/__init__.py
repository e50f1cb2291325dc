"""Agents of a personnel department."""

from agents.flows.hr.access import hr_access_bundle
from agents.flows.hr.onboarding import hr_onboarding, hr_onboarding_single

__all__ = ["hr_access_bundle", "hr_onboarding", "hr_onboarding_single"]
