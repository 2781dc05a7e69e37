"""Controlling the whitelisting requests of a sandbox, and the rules for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_custody.sandbox.control.calls import ControlCalls


class WhitelistControl(ControlCalls):
    """The control routes of whitelisting."""

    def whitelist_requests(self) -> list[dict[str, Any]]:
        """
        Return the whitelisting requests of all tenants.

        Each has its fields by their names on the wire, `id`, `tenantId`, `userId`, `status`, `createdAt`, and the
        `body` it was created from.
        """
        result: list[dict[str, Any]] = self._call("GET", "/whitelist-requests")
        return result

    def add_whitelist_requests(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        status: str = "APPROVED",
        tenant_id: str = "1",
        user_id: str = "1",
        signed: bool = False,
    ) -> list[str]:
        """
        Add many whitelisting requests at once, in effect by default and without signatures, and return their ids.

        They are checked and stored as if this user had created them; if one is refused, none is added.

        :param requests: the fields of each, by their names on the wire.
        :param status: the status of all; ``pending`` for requests that are to be approved.
        :param tenant_id: id of the tenant. Default ``1``.
        :param user_id: id of the user who created them. Default ``1``.
        :param signed: whether to sign them, as :meth:`sign_whitelist_requests` does.
        """
        body = {
            "requests": list(requests),
            "status": status,
            "tenant_id": tenant_id,
            "user_id": user_id,
            "signed": signed,
        }
        result: list[str] = self._call("POST", "/whitelist-requests", body)
        return result

    def sign_whitelist_requests(self, ids: Sequence[str]) -> None:
        """
        Really sign whitelisting requests until they are in effect.

        Users of the sandbox's own sign, as every group of the first branch: ``signer-1@example.test`` and so on. As
        many as it takes are added to the groups, which changes the rules once, before they sign. Each signs as many
        requests at a time as one approval may have.

        :param ids: requests that are pending, or in effect without enough signatures.
        """
        self._call("POST", "/whitelist-requests/sign", {"ids": list(ids)})

    def set_whitelist_status(self, request_id: str, status: str) -> None:
        """
        Set the status of a whitelisting request; with any but ``pending`` it is no longer pending approval.

        Nobody signs: a request that is in effect this way is one that the service lies about.
        With ``removed`` it cannot be found any more, as if it had been deleted.

        :param request_id: the request's id.
        :param status: the status.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"status": status})

    def attacks(self) -> list[dict[str, Any]]:
        """
        Return the attacks of a malicious service that can be ordered.

        Each has its `name`; the `row` that it has in the published list of attacks; a `description`; and as `outcome`
        what somebody makes of it who verifies by signatures alone: the envelope is ``refused``; what was changed is
        ``not read``; it is valid, and only to be ``compared`` with what was asked for; or the attack is
        ``not visible``.
        """
        result: list[dict[str, Any]] = self._call("GET", "/attacks")
        return result

    def attack(self, request_id: str, name: str | None) -> None:
        """
        Have the service lie about a whitelisting request, wherever it shows it.

        :param request_id: the request's id.
        :param name: one of :meth:`attacks`, in place of the one before; None: the service no longer lies.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}/attack", {"name": name})

    def set_approvers(self, parallel: list[dict[str, Any]] | None) -> None:
        """
        Set who must sign the whitelisting requests that are created from now on, if no rule is for their chain.

        Requests that are there keep theirs, and do not verify if the rules in force when they take effect ask for more.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``: any one
            branch must be signed, and within a branch one group after the other. None: one member of the group
            ``approvers``, or two for a request with both linked lists.
        """
        self._call("PUT", "/approvers", {"parallel": parallel})

    def set_rules(self, rules: Sequence[Mapping[str, Any]] | None) -> None:
        """
        Set all rules for the whitelisting requests that are created from now on.

        A request's rule is the first one for its chain and network, or else for its chain, or else for all chains.
        Without one, nobody can sign it.

        :param rules: each with ``currency`` (the chain) and ``network``, empty or left out for all; ``parallel``, as
            in :meth:`set_approvers`; and optionally ``lines``, each with the ``path`` of a wallet, and the ``parallel``
            that a request follows instead if this wallet is its only link. None: one rule for all, as
            :meth:`set_approvers` sets it.
        """
        self._call("PUT", "/rules", {"rules": None if rules is None else list(rules)})

    def set_superadmins(self, number: int, minimum: int) -> None:
        """
        Set how many super-administrators sign the rules, at first 2, and how many of them must: what is pinned.

        :param number: how many sign.
        :param minimum: how many must.
        """
        self._call("PUT", "/superadmins", {"number": number, "minimum": minimum})

    def pins(self) -> dict[str, Any]:
        """
        Return what a client pins to verify the rules, by the names of a connection's extras.

        ``superadmin_keys`` is a list of public keys in PEM, and ``superadmin_minimum`` how many of them must sign.
        """
        result: dict[str, Any] = self._call("GET", "/pins")
        return result

    def change_whitelist_request(self, request_id: str, **fields: Any) -> None:
        """
        Change fields of a whitelisting request, by their names on the wire; its payload and hash change too.

        :param request_id: the request's id.
        :param fields: the fields.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"fields": fields})

    def set_whitelist_metadata(self, request_id: str, **metadata: Any) -> None:
        """
        Replace ``hash`` or ``payloadAsString`` in what is returned of a whitelisting request; None removes it.

        :param request_id: the request's id.
        :param metadata: what to replace.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"metadata": metadata})

    def set_whitelist_envelope(self, request_id: str, **fields: Any) -> None:
        """
        Replace fields in what is returned of a whitelisting request, by their names; None removes them.

        :param request_id: the request's id.
        :param fields: the fields.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"envelope": fields})

    def set_network_is_hashed(self, is_hashed: bool) -> None:
        """
        Set whether payloads have the network, as they do at first; otherwise only the envelopes have it.

        :param is_hashed: whether they have it.
        """
        self._call("PUT", "/whitelist-network", {"is_hashed": is_hashed})

    def set_status_words(self, **words: str) -> None:
        """
        Set how the service writes status words, by the sandbox's own: ``pending="NEW"``, ``APPROVED="active"``.

        :param words: the service's word for each.
        """
        self._call("PUT", "/whitelist-status-words", {"words": words})

    def set_max_signatures(self, number: int | None) -> None:
        """
        Sign only so many requests of an approval, the first ones; None, as at first: all.

        :param number: how many.
        """
        self._call("PUT", "/max-signatures", {"number": number})

    def set_whitelist_age(self, request_id: str, seconds: float) -> None:
        """
        Date the creation of a whitelisting request so many seconds back.

        :param request_id: the request's id.
        :param seconds: how many.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"age": seconds})

    def set_whitelist_behaviour(self, **settings: Any) -> None:
        """
        Set how the service treats the whitelisting requests that are created from now on. None of this is published.

        What is not given goes back to the default:

        - ``address_form``: how addresses are stored: ``as sent``, ``lower``, ``upper``, ``no prefix``
        - ``label_length``: where longer labels are truncated
        - ``chain_name``: what the service calls the chain
        - ``drop_links``: whether the payload leaves the links out
        - ``fill``: fields, by their names on the wire, that get a value if the request leaves them out
        - ``fill_always``: the same, also if the request has a value
        - ``creator_sees_own``: whether a user's own requests are listed to that user; also for requests that exist
        - ``rules_on_pending``: whether pending requests show the rules in force; also for requests that exist. Those
          that have been signed show the rules of that time
        - ``deletion``: when a request is deleted: ``at once``, or once as many users have signed that as the request
          itself takes (``signed``). Until then it is listed as before, pending and with the action ``delete``; if
          that is rejected, it goes back to what it was. Also for requests that exist
        - ``clock_offset``: seconds that the service's clock is ahead; negative is behind
        - ``created_at``: the date of creation, whenever that is

        :param settings: the settings above.
        """
        self._call("PUT", "/whitelist-behaviour", settings)

    def set_whitelist_lag(self, seconds: float) -> None:
        """
        Set how many seconds old whitelisting requests must be to be found.

        :param seconds: the age.
        """
        self._call("PUT", "/whitelist-lag", {"seconds": seconds})
