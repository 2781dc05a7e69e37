"""Which task created a whitelisting request, as far as Airflow's database knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import or_, select

from airflow_custody.idempotency.created import MANY, ONE, has_created
from airflow_custody.plugin.links import CustodyRequestLink
from airflow_custody.plugin.paths import connection_path

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session

#: How many rows of the task state store are searched, newest first. No index has their keys, so this bounds the query.
MAX_SEARCHED = 20_000
#: How many tasks may have created a request with the id, at other services: connections have ids of their own.
_MAX_CANDIDATES = 50
_STORE = TaskStateStoreModel


@dataclass(frozen=True)
class Origin:
    """
    The task instance that created a request.

    :param dag_id: id of its DAG.
    :param run_id: id of its run.
    :param task_id: id of its task.
    :param map_index: its index among the mapped ones; -1: it is not mapped.
    :param is_certain: whether it is known that it created the request at the service, and not another one with the same
        id at the service that its connection led to then.
    :param asked_for: the fields that it asked for, by the names of the parameters; None: not known, not certain,
        or the user may not read the XCom of the DAG.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    is_certain: bool
    asked_for: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        """The path of its page, below Airflow's base URL."""
        dag, run, task = (quote(each, safe="") for each in (self.dag_id, self.run_id, self.task_id))
        mapped = f"/mapped/{self.map_index}" if self.map_index >= 0 else ""
        return f"/dags/{dag}/runs/{run}/tasks/{task}{mapped}"


def find_origin(user: BaseUser, conn_id: str, request_id: str, base_url: str) -> Origin | None:
    """
    Return the task instance that created a request: of several the newest, and one that is certain first.

    :param user: who asks.
    :param conn_id: id of the connection.
    :param request_id: the request's id.
    :param base_url: base URL of the service that shows it.
    :return: the task instance; None if it is not among the newest that left a state behind, belongs to a DAG that the
        user may not read, or is of another connection and maybe another service.
    """
    with create_session() as session:
        for origin in sorted(_candidates(session, request_id, base_url), key=lambda each: not each.is_certain):
            # At one service an id is one request, whoever asks: each approver has a connection of their own.
            if not origin.is_certain and not _is_of_connection(session, origin, conn_id):
                continue
            may_read = _reader(user, origin.dag_id, session)
            if not may_read(DagAccessEntity.TASK_INSTANCE):
                continue
            if not origin.is_certain or not may_read(DagAccessEntity.XCOM):
                return origin
            return replace(origin, asked_for=_asked_for(session, origin, request_id))
    return None


def _candidates(session: Session, request_id: str, base_url: str) -> Iterator[Origin]:
    """Yield the task instances whose state says that they have created a request with the id, newest first."""
    # By the primary key alone: the values, which may be large, are read only of rows that are ours.
    oldest = session.scalar(select(_STORE.id).order_by(_STORE.id.desc()).offset(MAX_SEARCHED).limit(1))
    query = (
        select(_STORE.dag_id, _STORE.run_id, _STORE.task_id, _STORE.map_index, _STORE.key, _STORE.value)
        .where(
            _STORE.id > (oldest or 0),
            or_(_STORE.key == ONE, _STORE.key.startswith(MANY, autoescape=True)),
            _STORE.value.contains(json.dumps(request_id), autoescape=True),
        )
        .order_by(_STORE.id.desc())
        .limit(_MAX_CANDIDATES)
    )
    for row in session.execute(query):
        is_created = has_created(row.key, row.value, request_id, base_url)
        if is_created is not False:
            yield Origin(row.dag_id, row.run_id, row.task_id, row.map_index, is_certain=is_created is True)


def _is_of_connection(session: Session, origin: Origin, conn_id: str) -> bool:
    """Tell whether a task instance used a connection: by its rendered fields, or its link if Airflow dropped them."""
    fields = session.scalar(_of(origin, RenderedTaskInstanceFields, RenderedTaskInstanceFields.rendered_fields))
    if isinstance(fields, dict) and "custody_conn_id" in fields:
        return bool(fields["custody_conn_id"] == conn_id)
    link, path = _xcom(session, origin, CustodyRequestLink().xcom_key), connection_path(conn_id)
    return bool(path) and isinstance(link, str) and any(f"{path}/requests{end}" in link for end in ("/", "?"))


def _asked_for(session: Session, origin: Origin, request_id: str) -> Mapping[str, Any] | None:
    """Return what a task instance pushed to XCom as what it asked for."""
    requests = _xcom(session, origin, "requests")
    for each in [_xcom(session, origin, "request"), *(requests if isinstance(requests, list) else ())]:
        if isinstance(each, dict) and each.get("id") == request_id:
            return {name: value for name, value in each.items() if name != "id"}
    return None


def _xcom(session: Session, origin: Origin, key: str) -> Any:
    """Return what a task instance pushed to XCom, as plain JSON; None if it is not there, or only a backend has it."""
    value = session.scalar(_of(origin, XComModel, XComModel.value).where(XComModel.key == key))
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _of(origin: Origin, model: Any, column: Any) -> Any:
    return select(column).where(
        model.dag_id == origin.dag_id,
        model.run_id == origin.run_id,
        model.task_id == origin.task_id,
        model.map_index == origin.map_index,
    )


def _reader(user: BaseUser, dag_id: str, session: Session) -> Callable[[DagAccessEntity], bool]:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id, session=session))

    def may_read(entity: DagAccessEntity) -> bool:
        return get_auth_manager().is_authorized_dag(method="GET", access_entity=entity, details=details, user=user)

    return may_read
