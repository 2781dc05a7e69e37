"""Criteria for the health of the service."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_custody.client.arguments import check_identifier, check_names
from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.text import ascii_lower


@dataclass(frozen=True)
class HealthCriteria:
    """
    The checks to evaluate, and the conditions under which they are healthy.

    Make one with :meth:`of`, which checks the values.

    :param tenant_id: the tenant whose checks are asked for; None: all tenants'.
    :param groups: only checks of these groups, by exact name; None: of all.
    :param components: only checks of these components, by exact name; None: of all.
    :param checks: only checks of these names; None: all.
    :param require_results: keys that some check must report, and that must be healthy wherever they are reported.
    :param healthy_statuses: the status words that count as healthy, in lower case.
    :param require_fresh: whether a check must not be past its ``validUntilDate``.
    """

    tenant_id: str | None = None
    groups: tuple[str, ...] | None = None
    components: tuple[str, ...] | None = None
    checks: tuple[str, ...] | None = None
    require_results: tuple[str, ...] | None = None
    healthy_statuses: tuple[str, ...] = ("success",)
    require_fresh: bool = True

    @classmethod
    def of(
        cls,
        *,
        tenant_id: str | int | None = None,
        groups: str | Iterable[str] | None = None,
        components: str | Iterable[str] | None = None,
        checks: str | Iterable[str] | None = None,
        require_results: str | Iterable[str] | None = None,
        healthy_statuses: str | Iterable[str] = ("success",),
        require_fresh: bool = True,
    ) -> HealthCriteria:
        """
        Return criteria made of what an author gave, templates rendered.

        The parameters are those of the class. A single name may be given as a string. An empty list is refused: it
        is more likely a template that rendered to nothing than a wish, and would make the gate weaker.

        :raises CustodyConfigurationError: if one of them is malformed; ``setting`` names it.
        """
        if not isinstance(require_fresh, bool):
            raise CustodyConfigurationError(
                "require_fresh must be True or False", setting="require_fresh", code="parameter-wrong"
            )
        if healthy_statuses is None:
            raise CustodyConfigurationError(
                "healthy_statuses is missing", setting="healthy_statuses", code="parameter-wrong"
            )
        return cls(
            tenant_id=None
            if tenant_id is None
            else check_identifier("tenant_id", tenant_id, CustodyConfigurationError),
            groups=_names("groups", groups),
            components=_names("components", components),
            checks=_names("checks", checks),
            require_results=_names("require_results", require_results),
            healthy_statuses=tuple(ascii_lower(word) for word in _names("healthy_statuses", healthy_statuses) or ()),
            require_fresh=require_fresh,
        )


def _names(setting: str, value: object) -> tuple[str, ...] | None:
    names = check_names(setting, value, CustodyConfigurationError)
    return None if names is None else tuple(names)
