"""Task groups that whitelist addresses: the addresses of a file, or a single address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException, TaskGroup, chain

from airflow_custody._base import NOT_GIVEN
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator, CustodyVerifyWhitelistOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

try:
    from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestOperator
    from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator

    _HAS_APPROVALS = True
except AirflowOptionalProviderFeatureException:
    _HAS_APPROVALS = False

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseNotifier, BaseOperator, ObjectStoragePath, XComArg

    from airflow_custody.client.signers import Signer

_Task = TypeVar("_Task", bound="BaseOperator")
_HEALTH_TIMEOUT = 30 * 60
_SIGNATURES_TIMEOUT = 24 * 60 * 60


class _WhitelistTaskGroup(TaskGroup):
    """The base of both groups: the wait for health, the signing tasks, and the checks of the approval's settings."""

    def __init__(
        self,
        *,
        signers: Mapping[str, Signer],
        approve: bool,
        approval: Mapping[str, Any],
        check_health: bool,
        custody_conn_id: str | XComArg,
        task_arguments: Mapping[str, Mapping[str, object]] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_flags(approve=approve, check_health=check_health)
        if not isinstance(signers, Mapping):
            raise ValueError(
                'signers must map connection ids of users to their signers, such as {"custody_first_signer": '
                'ConnectionSigner("custody_first_key")}; without signatures in this DAG: {}'
            )
        given = [name for name, value in approval.items() if value is not NOT_GIVEN and value]
        if given and not approve:
            raise ValueError(
                f"with approve=False, no approval is requested, so {', '.join(given)} would have no effect"
            )
        if approve and not _HAS_APPROVALS:
            raise AirflowOptionalProviderFeatureException(
                f"{type(self).__name__} cannot request an approval here: approvals need Airflow 3.1 or later with "
                "apache-airflow-providers-standard. Set approve=False to apply without an approval in Airflow. To "
                "approve a plan in advance, use the tasks of the example custody_whitelist_as_tasks."
            )
        self._is_mapped = next(self.iter_mapped_task_groups(), None) is not None
        if approve and self._is_mapped:
            raise ValueError(
                f"{type(self).__name__} cannot request an approval in a mapped task group, because a rejection would "
                "not skip its tasks: approve a plan of all rows with CustodyWhitelistFileTaskGroup(rows=...), or set "
                "approve=False"
            )
        self._connection = {"custody_conn_id": custody_conn_id}
        self._task_arguments = dict(task_arguments or {})
        self._used_arguments: set[str] = set()
        self.wait_until_healthy: CustodyHealthSensor | None = None
        if check_health:
            self.wait_until_healthy = self._add(
                CustodyHealthSensor,
                "wait_until_healthy",
                self._connection,
                defaults={"deferrable": True, "timeout": _HEALTH_TIMEOUT},
            )

    def _add(
        self,
        kind: Callable[..., _Task],
        name: str,
        fixed: Mapping[str, Any],
        *,
        defaults: Mapping[str, Any] | None = None,
        shared: Sequence[str] = (),
    ) -> _Task:
        """
        Create a task of the group.

        :param kind: the operator class.
        :param name: the task's id in the group.
        :param fixed: the arguments that ``task_arguments`` must not change. An argument whose value is ``NOT_GIVEN`` is
            left out, so that ``default_args`` apply.
        :param defaults: the arguments that ``default_args`` and ``task_arguments`` may change.
        :param shared: further keys of ``task_arguments`` whose arguments this task also gets.
        """
        # Set the trigger rule, because one from default_args could let a task sign although the approval was rejected.
        fixed = {"trigger_rule": "all_success", **fixed}
        inherited = {**self.dag.default_args, **self.default_args}
        arguments = {key: value for key, value in (defaults or {}).items() if key not in inherited}
        for key in (*shared, name):
            own = self._task_arguments.get(key, {})
            if not isinstance(own, Mapping):
                raise ValueError(f"task_arguments[{key!r}] must map names of parameters to values")
            if refused := sorted({*own} & {*fixed, "task_id", "task_group", "dag"}):
                raise ValueError(
                    f"task_arguments[{key!r}] must not contain {', '.join(refused)}, because the task group sets it"
                )
            arguments |= own
            self._used_arguments.add(key)
        arguments |= {key: value for key, value in fixed.items() if value is not NOT_GIVEN}
        with self:
            return kind(task_id=name, dag=self.dag, **arguments)

    def _sign(self, signers: Mapping[str, Signer], **content: Any) -> tuple[CustodySignWhitelistRequestsOperator, ...]:
        """Create the signing tasks, one for each signer."""
        return tuple(
            self._add(
                CustodySignWhitelistRequestsOperator,
                f"sign_{conn_id}",
                {"custody_conn_id": conn_id, "signer": signer, **content},
                shared=("sign",),
            )
            for conn_id, signer in signers.items()
        )

    def _wait(self, **content: Any) -> CustodyWhitelistRequestSensor:
        return self._add(
            CustodyWhitelistRequestSensor,
            "wait_until_effective",
            {**self._connection, **content},
            defaults={"deferrable": True, "timeout": _SIGNATURES_TIMEOUT},
        )

    def _check_task_arguments(self) -> None:
        """Refuse arguments of tasks that the group does not have. Call this after the last task is created."""
        if unknown := sorted({*self._task_arguments} - self._used_arguments):
            raise ValueError(
                f"task_arguments: the task group has no task {', '.join(map(repr, unknown))}. Its tasks: "
                f"{', '.join(sorted(self._used_arguments))}"
            )


class CustodyWhitelistFileTaskGroup(_WhitelistTaskGroup):
    """
    Whitelist the addresses of a file: plan, approve, apply, sign, wait until they are in effect, complete.

    The group consists of these ordinary tasks, in this order. Each is an attribute of the group, such as
    ``group.plan``, and has its name in the group as its task id, such as ``whitelist.plan``:

    - ``wait_until_healthy``, unless ``check_health`` is False;
    - ``plan``: compares the file with the service. If there is nothing to do, it skips the other tasks, except
      ``verify`` and ``prove``;
    - ``approve``, unless ``approve`` is False: a rejection, or no response in time, skips all other tasks, including
      ``verify`` and ``prove``;
    - ``apply``: creates the missing requests, each at most once, and sends nothing if the plan has changed;
    - ``sign_CONNECTION`` for each of the ``signers`` (``group.signatures``, a tuple);
    - ``wait_until_effective``;
    - ``complete``: deletes the replaced and pruned requests;
    - ``verify``, if ``evidence`` is set, and ``prove``, if ``prove`` is True; see these parameters. Neither of the two
      tasks waits for the other.

    Parameters that are not given have the values of ``default_args``, if it has them, except for trigger rules. To
    continue after a failure, clear the failed tasks. Set ``max_active_runs=1`` for the DAG. The user of
    ``custody_conn_id`` needs the roles ``WhitelistedAddressCreator`` and ``TPUser``, and each signing user
    ``WhitelistedAddressApprover`` and ``TPUser``.

    :param group_id: id of the group. Default ``whitelist``.
    :param path: the file, as for :class:`CustodyPlanWhitelistOperator`. (templated)
    :param rows: the rows, instead of ``path``. (templated)
    :param signers: the signers by the connection ids of their users, in the order in which they sign. ``{}``: the
        requests are signed elsewhere, and the group only waits.
    :param approve: whether the plan is applied only after an approval in Airflow's UI. False: every plan is applied,
        within the limits of ``plan``. Default True.
    :param assigned_users: the users who may approve, such as ``[{"id": "carol", "name": "carol"}]``. Default: every
        user who may edit the DAG's task instances.
    :param notifiers: notifiers that Airflow calls when the approval is requested. Default: none.
    :param response_timeout: time after which a plan without a response is rejected. Default: no limit.
    :param prune: whether to delete duplicates, and requests that are not in the file. Default False.
    :param replace: whether a row gets a new request if the request in effect differs. Default False. (templated)
    :param only: the scope of the plan, such as ``{"blockchain": "ETH"}``. Default: everything. (templated)
    :param at_most: maximum number of operations of one plan. The next run plans the rest. Default: as many as fit into
        one approval.
    :param evidence: an existing folder outside the DAG bundle, or a URL in an object storage
        (``s3://CONN_ID@bucket/folder``). The task ``verify`` then verifies the whole whitelist with the connection's
        pinned keys, and each of its tries writes a new file there, named after DAG, run, task and try. Default: no
        task ``verify``. (templated)
    :param prove: whether a last task, ``prove``, plans again. It fails if the service differs from the file, if rows of
        the file are pending, or if a part of a large plan is left for the next run. Default False, because ``complete``
        has checked each created request, and the next run plans again.
    :param check_health: whether to wait first until the service is healthy. Default True.
    :param task_arguments: further arguments of single tasks, by their names in the group:
        ``{"plan": {"max_creates": 500}, "apply": {"pool": "custody_apply"}}``. ``sign`` stands for all tasks that sign.
        ``prove`` also gets the arguments of ``plan``. Unknown names, and arguments that the group itself sets, are
        refused. Default: none.
    :param custody_conn_id: id of the Airflow connection. Default: the ``custody_conn_id`` in ``default_args``, or else
        ``custody_default``. (templated)
    :raises ValueError: if a setting is wrong, ``task_arguments`` has an unknown task or an argument that the group
        sets, or ``approve`` is True in a mapped task group.
    :raises AirflowOptionalProviderFeatureException: if ``approve`` is True, and this Airflow does not support
        approvals, which need Airflow 3.1 or later with ``apache-airflow-providers-standard``.
    """

    def __init__(
        self,
        *,
        group_id: str = "whitelist",
        path: str | ObjectStoragePath | XComArg = NOT_GIVEN,
        rows: str | Iterable[Mapping[str, object]] | XComArg = NOT_GIVEN,
        signers: Mapping[str, Signer],
        approve: bool = True,
        assigned_users: Mapping[str, str] | Sequence[Mapping[str, str]] | None = NOT_GIVEN,
        notifiers: BaseNotifier | Sequence[BaseNotifier] = NOT_GIVEN,
        response_timeout: timedelta | None = NOT_GIVEN,
        prune: bool = NOT_GIVEN,
        replace: bool | str | XComArg = NOT_GIVEN,
        only: Mapping[str, object] | XComArg = NOT_GIVEN,
        at_most: int | None = NOT_GIVEN,
        evidence: str | None = None,
        prove: bool = False,
        check_health: bool = True,
        task_arguments: Mapping[str, Mapping[str, object]] | None = None,
        custody_conn_id: str | XComArg = NOT_GIVEN,
        **kwargs: Any,
    ) -> None:
        approval = {"assigned_users": assigned_users, "notifiers": notifiers, "response_timeout": response_timeout}
        super().__init__(
            group_id=group_id,
            signers=signers,
            approve=approve,
            approval=approval,
            check_health=check_health,
            custody_conn_id=custody_conn_id,
            task_arguments=task_arguments,
            **kwargs,
        )
        _check_flags(prove=prove)
        whitelist = {**self._connection, "path": path, "rows": rows, "only": only}
        self.plan = self._add(
            CustodyPlanWhitelistOperator,
            "plan",
            {**whitelist, "prune": prune, "replace": replace, "at_most": at_most, "skip_if_nothing_to_do": True},
        )
        planned: Any = self.plan.output
        plan_hash: Any = planned["plan_hash"]
        self.approve: CustodyApproveWhitelistPlanOperator | None = None
        if approve:
            self.approve = self._add(
                CustodyApproveWhitelistPlanOperator, "approve", {"plan": planned, "defaults": "Reject", **approval}
            )
            # Use the hash that the approval returns: it exists only after an approval, and stays the hash of the
            # approved plan even if the plan task runs again.
            approved: Any = self.approve.output
            plan_hash = approved["plan_hash"]
        self.apply = self._add(
            CustodyApplyWhitelistPlanOperator,
            "apply",
            {**self._connection, "plan": planned, "rows": rows, "plan_hash": plan_hash},
        )
        applied: Any = self.apply.output
        # Sign, and wait, only if each request has exactly the applied content. If the plan consists of deletions only,
        # there are no requests, so skip these tasks.
        self.signatures = self._sign(
            signers, request_ids=applied["request_ids"], expected=applied["requests"], skip_if_empty=True
        )
        self.wait_until_effective = self._wait(
            request_id=applied["request_ids"], expected=applied["requests"], skip_if_empty=True
        )
        self.complete = self._add(
            CustodyCompleteWhitelistPlanOperator,
            "complete",
            {**self._connection, "applied": applied, "plan_hash": plan_hash},
        )
        # Set the order of the tasks that do not use each other's output.
        if self.wait_until_healthy is not None:
            self.wait_until_healthy >> self.plan
        chain(*self.signatures, self.wait_until_effective, self.complete)
        # The tasks ``verify`` and ``prove`` also run if there was nothing to do.
        self.verify: CustodyVerifyWhitelistOperator | None = None
        if evidence is not None:
            fixed = {**self._connection, "path": self._evidence_path(evidence), "trigger_rule": "none_failed"}
            self.verify = self._add(CustodyVerifyWhitelistOperator, "verify", fixed)
            self.complete >> self.verify
        self.prove: CustodyPlanWhitelistOperator | None = None
        if prove:
            checks = {"fail_on_changes": True, "fail_on_pending": True, "trigger_rule": "none_failed"}
            self.prove = self._add(CustodyPlanWhitelistOperator, "prove", {**whitelist, **checks}, shared=("plan",))
            self.complete >> self.prove
        self._check_task_arguments()

    def _evidence_path(self, folder: object) -> str:
        """Return a template for the path of the evidence file. It renders to a new path in each try."""
        if not isinstance(folder, str) or not folder.strip("/ "):
            raise ValueError("evidence must be the path of a folder, or the URL of one in an object storage")
        # Include these ids in the file's name, because several task groups may use the same folder, and an existing
        # file is never replaced.
        parts = ["{{ dag.dag_id }}", "{{ task.task_id }}", "{{ run_id }}", "{{ ti.try_number }}"]
        if self._is_mapped:
            parts.insert(2, "{{ ti.map_index }}")
        return f"{folder.rstrip('/')}/{'-'.join(parts)}.json"


class CustodyWhitelistRequestTaskGroup(_WhitelistTaskGroup):
    """
    Whitelist one address: create the request, approve, sign, wait until the address is in effect.

    The group consists of these ordinary tasks, in this order. Each is an attribute of the group, such as
    ``group.create``, and has its name in the group as its task id, such as ``whitelist_address.create``:

    - ``wait_until_healthy``, unless ``check_health`` is False;
    - ``create``: creates the request at most once. A request with the same content that is pending or in effect is
      used again;
    - ``approve``, unless ``approve`` is False: shows the created request. A rejection, or no response in time, skips
      all tasks after it. The request then stays pending at the service: reject or delete it there;
    - ``sign_CONNECTION`` for each of the ``signers`` (``group.signatures``, a tuple);
    - ``wait_until_effective``.

    Parameters that are not given have the values of ``default_args``, if it has them, except for trigger rules. To
    continue after a failure, clear the failed tasks. The group can be mapped inside a function with ``@task_group``,
    with ``approve=False``. For more than a few dozen addresses, or with an approval, use
    :class:`CustodyWhitelistFileTaskGroup` with ``rows``. The user of ``custody_conn_id`` needs the roles
    ``WhitelistedAddressCreator`` and ``TPUser``, and each signing user ``WhitelistedAddressApprover`` and ``TPUser``.

    :param group_id: id of the group. Default ``whitelist_address``.
    :param label: label of the address. This parameter and those up to ``visibility_group_id`` are the same as for
        :class:`CustodyCreateWhitelistRequestOperator`. (templated)
    :param address: the destination address. (templated)
    :param blockchain: symbol of the chain, for example ``ETH``; or use ``currency``. (templated)
    :param currency: a deprecated alias of ``blockchain``. (templated)
    :param linked_internal_address_ids: only these internal addresses may send funds to the address. (templated)
    :param linked_wallet_ids: only these wallets may send funds to the address. (templated)
    :param network: network of the chain. Default: the service's default. (templated)
    :param memo: memo or destination tag that goes with the address. (templated)
    :param address_type: kind of the address, for example ``individual`` or ``exchange``. (templated)
    :param contract_type: kind of the contract behind the address. (templated)
    :param customer_id: the customer the address belongs to. (templated)
    :param exchange_account_id: the account at the exchange. (templated)
    :param visibility_group_id: group of users who see the address. (templated)
    :param signers: the signers by the connection ids of their users, in the order in which they sign. ``{}``: the
        request is signed elsewhere, and the group only waits.
    :param approve: whether the request is signed only after an approval in Airflow's UI. Default True.
    :param assigned_users: the users who may approve, such as ``[{"id": "carol", "name": "carol"}]``. Default: every
        user who may edit the DAG's task instances.
    :param notifiers: notifiers that Airflow calls when the approval is requested. Default: none.
    :param response_timeout: time after which the approval of a request counts as rejected if no user responds. Default:
        no limit.
    :param check_health: whether to wait first until the service is healthy. Default True.
    :param task_arguments: further arguments of single tasks, by their names in the group:
        ``{"create": {"if_exists": "fail"}, "sign": {"comment": "settlement"}}``. ``sign`` stands for all tasks that
        sign. Unknown names, and arguments that the group itself sets, are refused. Default: none.
    :param custody_conn_id: id of the Airflow connection. Default: the ``custody_conn_id`` in ``default_args``, or else
        ``custody_default``. (templated)
    :raises ValueError: if a setting is wrong, ``task_arguments`` has an unknown task or an argument that the group
        sets, or ``approve`` is True in a mapped task group.
    :raises AirflowOptionalProviderFeatureException: if ``approve`` is True, and this Airflow does not support
        approvals, which need Airflow 3.1 or later with ``apache-airflow-providers-standard``.
    """

    def __init__(
        self,
        *,
        group_id: str = "whitelist_address",
        label: str | XComArg,
        address: str | XComArg,
        blockchain: str | XComArg | None = NOT_GIVEN,
        currency: str | XComArg | None = NOT_GIVEN,
        linked_internal_address_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        linked_wallet_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        network: str | XComArg | None = NOT_GIVEN,
        memo: str | XComArg | None = NOT_GIVEN,
        address_type: str | XComArg | None = NOT_GIVEN,
        contract_type: str | XComArg | None = NOT_GIVEN,
        customer_id: str | XComArg | None = NOT_GIVEN,
        exchange_account_id: str | XComArg | None = NOT_GIVEN,
        visibility_group_id: str | XComArg | None = NOT_GIVEN,
        signers: Mapping[str, Signer],
        approve: bool = True,
        assigned_users: Mapping[str, str] | Sequence[Mapping[str, str]] | None = NOT_GIVEN,
        notifiers: BaseNotifier | Sequence[BaseNotifier] = NOT_GIVEN,
        response_timeout: timedelta | None = NOT_GIVEN,
        check_health: bool = True,
        task_arguments: Mapping[str, Mapping[str, object]] | None = None,
        custody_conn_id: str | XComArg = NOT_GIVEN,
        **kwargs: Any,
    ) -> None:
        approval = {"assigned_users": assigned_users, "notifiers": notifiers, "response_timeout": response_timeout}
        super().__init__(
            group_id=group_id,
            signers=signers,
            approve=approve,
            approval=approval,
            check_health=check_health,
            custody_conn_id=custody_conn_id,
            task_arguments=task_arguments,
            **kwargs,
        )
        request = {
            "label": label,
            "address": address,
            "blockchain": blockchain,
            "currency": currency,
            "linked_internal_address_ids": linked_internal_address_ids,
            "linked_wallet_ids": linked_wallet_ids,
            "network": network,
            "memo": memo,
            "address_type": address_type,
            "contract_type": contract_type,
            "customer_id": customer_id,
            "exchange_account_id": exchange_account_id,
            "visibility_group_id": visibility_group_id,
        }
        self.create = self._add(CustodyCreateWhitelistRequestOperator, "create", {**self._connection, **request})
        request_id: Any = self.create.output
        content: Any = request_id["request"]
        self.approve: CustodyApproveWhitelistRequestOperator | None = None
        if approve:
            self.approve = self._add(
                CustodyApproveWhitelistRequestOperator,
                "approve",
                {"request": content, "defaults": "Reject", **approval},
            )
            # Use the id and content that the approval returns: they exist only after an approval, and stay the approved
            # ones even if the create task runs again.
            approved: Any = self.approve.output
            request_id, content = approved["request_id"], approved["request"]
        # Sign, and wait, only if the request has exactly this content.
        self.signatures = self._sign(signers, request_ids=request_id, expected=content)
        self.wait_until_effective = self._wait(request_id=request_id, expected=content)
        # Set the order of the tasks that do not use each other's output.
        if self.wait_until_healthy is not None:
            self.wait_until_healthy >> self.create
        chain(*self.signatures, self.wait_until_effective)
        self._check_task_arguments()


def _check_flags(**flags: object) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, not {value!r}")
