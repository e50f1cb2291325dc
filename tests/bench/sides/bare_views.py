"""The reference of the `aap` measure: Django views written by hand, with a table of requests and one of events.

Each view checks a token, and writes what its counterpart of ours is for: the request, the decision, the use. Ours
also has a run with a journal, a frozen request, a signed decision, policies, rights and an audit trail.
"""

import hashlib
import json
from uuid import uuid4

from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

TABLES = """
    CREATE TABLE IF NOT EXISTS bare_token (hash text PRIMARY KEY, owner text NOT NULL);
    CREATE TABLE IF NOT EXISTS bare_request (
        id uuid PRIMARY KEY, owner text NOT NULL, key text NOT NULL, body text NOT NULL, status text NOT NULL,
        decided_by text, decided_at timestamptz, used_at timestamptz, UNIQUE (owner, key));
    CREATE TABLE IF NOT EXISTS bare_event (
        id bigserial PRIMARY KEY, request uuid NOT NULL, body text NOT NULL);
"""


def create(request: HttpRequest) -> JsonResponse:
    request_id, owner = uuid4(), _owner(request)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO bare_request VALUES (%s, %s, %s, %s, 'pending')",
            (request_id, owner, request.headers["Idempotency-Key"], request.body.decode()),
        )
        _log(request_id, "created", owner)
    return JsonResponse({"id": str(request_id), **json.loads(request.body)}, status=201)


def decide(request: HttpRequest, id: str) -> JsonResponse:
    owner = _owner(request)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bare_request SET status = %s, decided_by = %s, decided_at = now()"
            " WHERE id = %s AND status = 'pending'",
            (json.loads(request.body)["verdict"], owner, id),
        )
        assert cursor.rowcount == 1
        _log(id, "decided", owner)
    return JsonResponse({"id": id})


def consume(request: HttpRequest, id: str) -> JsonResponse:
    owner = _owner(request)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE bare_request SET used_at = now()"
            " WHERE id = %s AND owner = %s AND status = 'approve' AND used_at IS NULL RETURNING body",
            (id, owner),
        )
        ((body,),) = cursor.fetchall()
        _log(id, "used", owner)
    return JsonResponse({"id": id, **json.loads(body)})


def _owner(request: HttpRequest) -> str:
    token = request.headers["Authorization"].removeprefix("Bearer ")
    with connection.cursor() as cursor:
        hashed = hashlib.sha256(token.encode()).hexdigest()
        cursor.execute("SELECT owner FROM bare_token WHERE hash = %s", (hashed,))
        ((owner,),) = cursor.fetchall()
    return str(owner)


def _log(id: object, act: str, owner: str) -> None:
    with connection.cursor() as cursor:
        body = json.dumps({"act": act, "by": owner})
        cursor.execute("INSERT INTO bare_event (request, body) VALUES (%s, %s)", (str(id), body))


urlpatterns = [
    path("requests", create),
    path("requests/<str:id>/decision", decide),
    path("requests/<str:id>/consume", consume),
]
