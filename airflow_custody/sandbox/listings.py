"""What a listing may do that the interface leaves open: rows that move between pages, odd totals, ignored filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.state import State

Row = TypeVar("Row")


class ListingOddities(BaseModel):
    """How a listing behaves; by default, as it should."""

    model_config = ConfigDict(extra="forbid")

    page_size: Annotated[int, Field(ge=1)] | None = None
    totals: list[str | int | None] = []
    ignored: list[str] = []
    orders: list[list[str]] = []


class Listing:
    """
    The oddities of one listing.

    :param state: the sandbox's state.
    :param name: name of the listing.
    """

    def __init__(self, state: State, name: str) -> None:
        self._state = state
        self._setting = f"listing {name}"

    def set(self, oddities: ListingOddities) -> None:
        """Set how the listing behaves."""
        self._state.set_setting(self._setting, oddities.model_dump())

    def understood(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the query parameters without those that are ignored."""
        ignored = self._get().ignored
        return {name: value for name, value in parameters.items() if name not in ignored}

    def page_size(self, size: int) -> int:
        """Return how many rows a page has, of those that it was to have."""
        return min(size, self._get().page_size or size)

    @property
    def is_arranged(self) -> bool:
        """Whether the rows are listed in an order of the test's."""
        return bool(self._get().orders)

    def arrange(self, rows: list[Row], identify: Callable[[Row], str]) -> list[Row]:
        """Return the rows as this call lists them; each call uses up an order, but for the last."""
        order = self._take("orders", None)
        if order is None:
            return rows
        by_id = {identify(row): row for row in rows}
        return [by_id[each] for each in order if each in by_id]

    def total(self, number: int) -> str | int | None:
        """Return the total as this call gives it; each call uses up a value, but for the last."""
        total: str | int | None = self._take("totals", str(number) if number else None)
        return total

    def _take(self, field: str, default: Any) -> Any:
        values = getattr(self._get(), field)
        if not values:
            return default
        if len(values) > 1:
            self.set(self._get().model_copy(update={field: values[1:]}))
        return values[0]

    def _get(self) -> ListingOddities:
        return ListingOddities.model_validate(self._state.get_setting(self._setting, {}))
