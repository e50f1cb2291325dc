"""Connects the rooms: what the engine asks for through runtime.ports is plugged in here, once per process."""

from approvals import permissions
from runtime import ports


def connect() -> None:
    """What every process needs. Effects come in workers only, see config.celery."""
    ports.plug(access=permissions.Access())


def connect_effects() -> None:
    """What workers need on top: the agents themselves, and the catalogue of them for everybody else."""
