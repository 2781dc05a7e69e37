"""The base of the operators that plan and apply a whitelist."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, conf

from airflow_custody._base import EFFECTIVE_STATUSES, NOT_GIVEN, REJECTED_STATUSES
from airflow_custody.assets import WHITELIST_EVENTS, whitelist_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, ObjectStoragePath

    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.plans.planner import PlanSettings
    from airflow_custody.client.whitelist.request import StatusWords


# Of a URL in lower case: what Airflow itself takes for a file of the worker, and what may be an object storage's.
_LOCAL_SCHEMES = ("file", "local")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


class WhitelistFileTask(CustodyOperator):
    """The base of planning and applying: file or rows, and the settings of a plan, which must be the same for both."""

    template_fields: Sequence[str] = (
        "path",
        "replace",
        "only",
        "rows",
        "effective_statuses",
        "rejected_statuses",
        "accept_fields",
        "ignore",
        "custody_conn_id",
    )
    none_is_a_value = ("effective_statuses",)

    def __init__(
        self,
        *,
        path: str | ObjectStoragePath = NOT_GIVEN,
        rows: str | Iterable[Mapping[str, Any]] = NOT_GIVEN,
        prune: bool = False,
        replace: bool | str = False,
        only: Mapping[str, Any] = NOT_GIVEN,
        check_address: bool = True,
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        accept_fields: Iterable[str] = (),
        ignore: Iterable[str | int] = (),
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        if WHITELIST_EVENTS:
            self.outlets = [*self.outlets, WHITELIST_EVENTS]
        self._check_flags(prune=prune, check_address=check_address)
        if (path is NOT_GIVEN) == (rows is NOT_GIVEN):
            self._refuse("give either path or rows: the whitelist is a file, or a list of rows")
        if self.omit_if_none and rows is NOT_GIVEN:
            self._refuse("omit_if_none is about rows: in a file, leave out a field that has no value")
        self.path = path
        self.rows = rows
        self.prune = prune
        self.replace = replace
        self.only = only
        self.check_address = check_address
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses
        self.accept_fields = accept_fields
        self.ignore = ignore
        # Each value has a key of its own, too: plan.output["plan_hash"]. Set here, as a mapped task loses a default.
        self.multiple_outputs = True

    @classmethod
    def _optional_parameters(cls) -> set[str]:
        """Return the names that ``omit_if_none`` may have: also those of a row's optional fields."""
        of_a_row = CustodyCreateWhitelistRequestOperator._optional_parameters()
        return (super()._optional_parameters() - {"path", "rows"}) | of_a_row

    def _push(self, context: Context, result: dict[str, Any]) -> None:
        """Push to XCom what the task would return, before it fails or is skipped."""
        for key, value in {**result, "return_value": result}.items():
            context["ti"].xcom_push(key=key, value=value)

    def _emit(self, context: Context, event: str, result: Mapping[str, Any]) -> None:
        """Emit an event of the connection's whitelist, which Airflow stores together with the task's success."""
        if WHITELIST_EVENTS:
            extra = {"event": event, "plan_hash": result["plan_hash"], **result["counts"]}
            context["outlet_events"][WHITELIST_EVENTS].add(whitelist_asset(self.custody_conn_id), extra=extra)

    def _read_file(self, context: Context) -> WhitelistFile:
        from airflow_custody.client.text import count
        from airflow_custody.client.whitelist.files.reading import read_whitelist_rows

        if self.rows is None:
            file = self._read_path(context)
        else:
            file = read_whitelist_rows(self.rows, check_addresses=self.check_address, omit_if_none=self.omit_if_none)
        self.log.info("Read %s from %s (SHA-256 %s).", count(len(file.rows), "row"), file.name, file.sha256)
        if file.unchecked:
            self.log.info("%s: %s.", file.name, file.unchecked_text)
        return file

    def _read_path(self, context: Context) -> WhitelistFile:
        from airflow_custody.client.arguments import check_text
        from airflow_custody.client.whitelist.files.reading import (
            file_error,
            format_of,
            parse_whitelist,
            read_whitelist_file,
        )

        path: Any = self.path
        if not isinstance(path, str):
            from airflow.providers.common.compat.sdk import ObjectStoragePath

            path = str(path) if isinstance(path, ObjectStoragePath) else path
        name = check_text("path", path)
        scheme, is_url, rest = name.partition("://")
        scheme = scheme.lower()
        if not is_url or scheme in _LOCAL_SCHEMES:
            file = self._resolve_path(rest if is_url else name, context)
            return read_whitelist_file(file, check_addresses=self.check_address)
        if not _SCHEME.fullmatch(scheme):
            # Airflow would drop white space from it and read file://, and with it a link that leads out of the bundle.
            raise file_error(name, ["what comes before :// is not the scheme of an object storage, such as s3"])
        url = f"{scheme}://{rest}"
        _check_url(url)
        # Before it is read: a format that is not known is refused.
        format = format_of(url)
        return parse_whitelist(_read_object(url), format, name=url, check_addresses=self.check_address)

    def _settings(self) -> PlanSettings:
        """Return the settings of the plan, checked."""
        from airflow_custody.client.arguments import check_flag, check_names
        from airflow_custody.client.whitelist.plans.plan import check_only
        from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored

        return PlanSettings(
            prune=self.prune,
            replace=check_flag("replace", self.replace),
            only={} if self.only is None else check_only(self.only),
            accept_fields=check_names("accept_fields", self.accept_fields, may_be_empty=True) or (),
            ignore=check_ignored(self.ignore),
        )

    def _words(self) -> StatusWords:
        """Return the status words, checked."""
        from airflow_custody.client.whitelist.request import StatusWords

        return StatusWords.read(self.effective_statuses, self.rejected_statuses)

    def _folder_and_root(self, context: Context) -> tuple[Path, Path]:
        """Return the folder of the DAG's file, and the bundle, or on Airflow 2 the DAGs folder, that it is in."""
        dag_file = self.dag.fileloc if self.has_dag() else None  # type: ignore[no-untyped-call]
        folder = Path(dag_file).parent if dag_file else Path.cwd()
        bundle: Any = getattr(context["ti"], "bundle_instance", None)
        if bundle is not None:
            return folder, Path(bundle.path)
        root = Path(conf.get("core", "dags_folder"))
        # A test's DAG, or one in a script, is in neither.
        return folder, root if _is_in(root, folder) else folder

    def _resolve_path(self, path: str, context: Context) -> Path:
        """
        Return the file that a path means.

        A relative path begins in the folder of the DAG's file. A path that leads into a DAG bundle, or on Airflow 2
        into the DAGs folder, must not leave it through a link: the bundle is what was reviewed.
        """
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.text import sanitize

        folder, root = self._folder_and_root(context)
        is_relative = not Path(path).is_absolute()
        archive = next((each for each in (folder, *folder.parents) if each.is_file()), None)
        if is_relative and archive is not None:
            raise CustodyRequestError(
                f"the path {sanitize(path, 200)!r} is relative, and the DAG's file is in an archive, "
                f"{sanitize(archive, 300)}; nothing was read",
                advice="Keep the whitelist file outside the archive, and give its absolute path, or the URL of an "
                "object storage.",
                code="file-wrong",
            )
        given = Path(os.path.normpath(folder / path))
        # However the path is spelled: some folder on its way, or the file itself, lies in the bundle.
        is_inside = any(_is_in(root, each) for each in (given, *given.parents))
        if (is_inside or is_relative) and not _is_in(root, given):
            raise CustodyRequestError(
                f"the path {sanitize(path, 200)!r} leads out of the DAG's bundle, to {sanitize(given.resolve(), 300)}; "
                "nothing was read",
                advice="Keep the file in the bundle, where its changes are reviewed, or give its absolute path.",
                code="file-wrong",
            )
        return given


def _is_in(root: Path, path: Path) -> bool:
    """Tell whether a path lies in a folder, after all links."""
    return path.resolve().is_relative_to(root.resolve())


def _check_url(url: str) -> None:
    """Refuse the URL of an object if it has a password or a signature in it; the error quotes neither."""
    from airflow_custody.client.whitelist.files.reading import file_error

    scheme, _, rest = url.partition("://")
    host, slash, key = rest.partition("?")[0].partition("/")
    user, _, host = host.rpartition("@")
    # Without a slash before it, a ? may be one of a password.
    shown = f"{scheme}://{host}/{key}" if slash else f"{scheme}://"
    if ":" in user:
        raise file_error(shown, ["before the @ stands the id of an Airflow connection, never a password"])
    if "?" in rest:
        # What follows may be a signature, with which anybody can read the file.
        raise file_error(shown, ["give the object's plain URL, without a ?: its Airflow connection signs the request"])


def _read_object(name: str) -> bytes:
    """Return the bytes of a file in an object storage, and one more if it is too large."""
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    from airflow_custody.client.text import sanitize
    from airflow_custody.client.whitelist.files.reading import MAX_FILE_BYTES, file_error

    # Each storage raises errors of its own. Reading may be repeated; after these it would not help.
    final = (FileNotFoundError, PermissionError, IsADirectoryError, ValueError, ImportError, AirflowNotFoundException)
    try:
        path: Any = ObjectStoragePath(name)
        with path.open("rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except Exception as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "there is no such file" if is_missing else f"{type(error).__name__}: {sanitize(error, 500)}"
        raise file_error(name, [reason], retryable=not isinstance(error, final)) from None
    return data


def check_hash(value: object) -> str:
    """Return a plan's hash; raise if it is anything else, a part of one above all."""
    from airflow_custody.client.arguments import check_text, describe
    from airflow_custody.client.errors import CustodyRequestError

    if isinstance(value, Mapping):
        raise CustodyRequestError(
            "plan_hash must be the hash alone; nothing was sent",
            advice='Write plan_hash=plan.output["plan_hash"].',
            code="plan-changed",
        )
    text = check_text("plan_hash", value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CustodyRequestError(
            f"plan_hash must be all 64 hexadecimal digits of a plan's hash, not {describe(text)}; nothing was sent",
            code="plan-changed",
        )
    return text
