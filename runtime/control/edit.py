"""Checks the arguments with which a reviewer replaces those of a call.

They are JSON of the tool's schema, without unknown names. Secrets stay as the model gave them. The tool stays too: the
digest of the edited action has the tool, schema, agents and effect class of the proposed one.
"""

from collections.abc import Mapping
from typing import Any

from runtime.core.values import json_schema
from runtime.core.values.enums import Edit, EffectClass
from runtime.core.values.json_values import hash_action, hash_value, measure_size
from runtime.core.values.limits import MAX_ARGS
from runtime.errors import InvalidInput, require_json_input
from runtime.keyring import sealing

FIELD = "arguments"
UNCHANGED = "are unchanged: approve the call as it is"


def is_previewed(preview: object) -> bool:
    """Return whether the tool has a preview, so that edits of its calls are previewed too.

    `preview` is that of the request, see ReviewSnapshot.
    """
    return isinstance(preview, dict) and not preview.keys().isdisjoint(("shown", "missing"))


def edit(
    *,
    tool: str,
    schema: Mapping[str, Any],
    path: tuple[str, ...],
    effect: EffectClass,
    args: Any,
    new_args: Any,
) -> Edit:
    """Return the edit of the proposed `args` to `new_args`, which may leave out secrets or have their placeholder.

    Raises InvalidInput naming `arguments` or a field in it.
    """
    if not isinstance(args, dict) or sealing.is_sealed(args):
        raise InvalidInput(FIELD, "cannot be changed: the model gave no object of arguments")
    if not isinstance(new_args, dict):
        raise InvalidInput(FIELD, "must be a JSON object")
    held_names = sealing.list_held_args(tool, args)
    # Those that are sealed, and missing ones by the mark of the schema.
    secret = (sealing.list_secret_args(tool, args) - held_names) | json_schema.write_only(schema)
    changed = _with_secrets(secret, args, new_args)
    require_json_input(changed, FIELD)
    size = measure_size(changed)
    if size > MAX_ARGS:
        raise InvalidInput(FIELD, f"are {size} bytes of JSON, at most {MAX_ARGS} are allowed")
    check_schema(schema, changed, secret=secret)
    if held_names and changed == sealing.open_args_for_reviewers(tool, args):
        raise InvalidInput(FIELD, UNCHANGED)
    for name in held_names & changed.keys():
        changed[name] = sealing.seal_arg(tool, name, changed[name])

    def digest(of: Any) -> str:
        return hash_action(tool=tool, schema=hash_value(schema), args=of, path=path, effect=effect)

    edited = Edit(args=changed, digest=digest(changed))
    if edited.digest == digest(args):
        raise InvalidInput(FIELD, UNCHANGED)
    return edited


def check_schema(
    schema: Mapping[str, Any], args: Mapping[str, Any], secret: frozenset[str], field: str = FIELD
) -> None:
    """Raise InvalidInput naming `field`, or a field in it, unless the public arguments fit the schema."""
    properties = schema.get("properties", {})
    for name in args:
        if name not in properties and name not in secret:
            raise InvalidInput(f"{field}.{name}", "is not expected")
    public = {name: value for name, value in args.items() if name not in secret}
    public_schema = {
        **schema,
        "properties": {name: rule for name, rule in properties.items() if name not in secret},
        "required": [name for name in schema.get("required", []) if name not in secret],
    }
    for problem in json_schema.list_problems(public_schema, public, field):
        raise InvalidInput(problem.field, problem.detail)


def _with_secrets(
    secret: frozenset[str], args: Mapping[str, Any], new_args: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the new arguments with the proposed secrets. Raises InvalidInput if they have other values."""
    for name, value in new_args.items():
        field = f"{FIELD}.{name}"
        if name in secret and value not in (sealing.REDACTED, args.get(name)):
            raise InvalidInput(field, "is secret and cannot be changed")
        if name not in secret and sealing.has_sealed_mark(value) and value != args.get(name):
            raise InvalidInput(field, "must not hold a sealed secret")
    public = {name: value for name, value in new_args.items() if name not in secret}
    secrets = {name: value for name, value in args.items() if name in secret}
    return {**public, **secrets}
