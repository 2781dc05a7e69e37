"""
The provider metadata.

Each Airflow process loads this module, so it imports nothing.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """
    Return the provider metadata.

    :return: the metadata, in the form of Airflow's ``provider.yaml`` schema.
    """
    return {
        "package-name": "airflow-provider-custody",
        "name": "Custody",
        "description": "Run digital-asset custody work as Airflow DAGs: health gates, whitelisting requests, webhooks. "
        "For services with the API of Taurus-PROTECT; not affiliated with its vendor.",
        "integrations": [
            {
                "integration-name": "Custody",
                # No "external-doc-url" or "how-to-guide", because the documentation has no public address.
                "tags": ["service"],
            }
        ],
        "hooks": [{"integration-name": "Custody", "python-modules": ["airflow_custody.hooks.custody"]}],
        "operators": [
            {
                "integration-name": "Custody",
                "python-modules": [
                    "airflow_custody.operators.health",
                    "airflow_custody.operators.webhook",
                    "airflow_custody.operators.whitelist",
                    "airflow_custody.operators.whitelist_approval",
                    "airflow_custody.operators.whitelist_signing",
                    "airflow_custody.operators.whitelist_plan",
                    "airflow_custody.operators.whitelist_plan_approval",
                    "airflow_custody.operators.whitelist_plan_completion",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Custody",
                "python-modules": ["airflow_custody.sensors.health", "airflow_custody.sensors.whitelist"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Custody",
                "python-modules": [
                    "airflow_custody.triggers.health",
                    "airflow_custody.triggers.webhook",
                    "airflow_custody.triggers.whitelist",
                ],
            }
        ],
        "asset-uris": [{"schemes": ["custody"], "handler": "airflow_custody.assets.normalize_uri"}],
        # For `airflow providers links`. Airflow 2 has no page, so no operator has the links there.
        "extra-links": [
            "airflow_custody.plugin.links.CustodyPageLink",
            "airflow_custody.plugin.links.CustodyRequestLink",
        ],
        # From version 3.2 on, Airflow adds these commands to its own. The console script works everywhere.
        "cli": ["airflow_custody.cli.main.get_airflow_commands"],
        "config": {
            "custody": {
                "description": "The Custody page in Airflow's UI.",
                "options": {
                    "page": {
                        "description": "Whether to add the Custody page. Without the page, the API server reads no "
                        "service, and tasks have no links to the page.",
                        "version_added": "2.0.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                    "page_connections": {
                        "description": "Ids of further connections for the page, comma-separated. The page finds all "
                        "connections in the database and in environment variables. It cannot list connections in a "
                        "secrets backend, so name these here.",
                        "version_added": "2.0.0",
                        "type": "string",
                        "example": "custody_prod, custody_test",
                        "default": "",
                    },
                },
            }
        },
        "connection-types": [
            {
                "connection-type": "custody",
                "hook-name": "Custody",
                "hook-class-name": "airflow_custody.hooks.custody.CustodyHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {
                        "host": "Base URL",
                        "login": "User name",
                        "password": "API token, password or API key secret",
                    },
                    "placeholders": {
                        "host": "https://custody.example.com",
                        "login": "only to sign in with a password",
                        "port": "such as 443; required for Test Connection on Airflow 3.3",
                    },
                },
                # The form saves unset fields as null, so each field accepts null. The client's settings have the
                # defaults.
                "conn-fields": {
                    "auth": {
                        "label": "Authentication method",
                        "description": "Automatic: derived from the other fields that are filled in.",
                        "schema": {
                            "type": ["string", "null"],
                            "enum": [None, "bearer", "password", "api_key"],
                            "values_display": {
                                "null": "Automatic",
                                "bearer": "API token",
                                "password": "User name and password",
                                "api_key": "API key",
                            },
                        },
                    },
                    "api_key_id": {
                        "label": "API key ID",
                        "description": "Only for an API key; its secret goes into the field of the API token. Also set "
                        "the authentication method. Otherwise, once this ID is cleared, the secret would be sent as "
                        "an API token.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "timeout": {
                        "label": "Timeout (seconds)",
                        "description": "Seconds allowed for connecting, for each wait for data, and for reading the "
                        "whole response body. Each retry gets the full time again. Default: 30.",
                        "schema": {"type": ["number", "null"], "minimum": 1, "maximum": 86400},
                    },
                    "verify": {
                        "label": "TLS verification",
                        "description": "Whether to verify the service's TLS certificate (true or false), or the path "
                        "of a CA bundle to verify it with. Environment variables do not change it. Default: true.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "client_cert": {
                        "label": "Client certificate",
                        "description": "Path of a PEM file with certificate and key, or the paths of two files, "
                        "comma-separated or as a pair. Default: none.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "proxy": {
                        "label": "Proxy",
                        "description": "URL of a proxy, http:// or https://. Default: for an HTTPS base URL, the "
                        "proxy in the environment variable HTTPS_PROXY, or else ALL_PROXY, unless NO_PROXY excludes "
                        "the host; for plain HTTP, none.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "max_retries": {
                        "label": "Retries",
                        "description": "Maximum number of retries of a call that is safe to repeat. Default: 3.",
                        "schema": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
                    },
                    "max_response_bytes": {
                        "label": "Maximum response size (bytes)",
                        "description": "Maximum size of a response in bytes. A larger response is refused, and so is "
                        "a response with more JSON values than this size divided by 64. Default: 33554432 (32 MiB).",
                        "schema": {"type": ["integer", "null"], "minimum": 1},
                    },
                    "allow_http": {
                        "label": "Allow plain HTTP",
                        "description": "Whether the token may travel unencrypted, over plain HTTP, to another "
                        "machine. Default: no.",
                        "schema": {"type": ["boolean", "null"]},
                    },
                    "superadmin_keys": {
                        "label": "Super-administrators' public keys",
                        "description": "Public keys of the super-administrators, for verifying whitelisted addresses: "
                        "PEM text, or the path of a file, which must be absolute in a connection. Get the keys from "
                        "the people who hold them, not from the service. Default: none; then no address is verified, "
                        "and the service's data is trusted.",
                        "schema": {"type": ["string", "null"], "format": "multiline"},
                    },
                    "superadmin_minimum": {
                        "label": "Super-administrators' signatures",
                        "description": "Number of the super-administrators' keys that must have signed the rules. "
                        "Required if keys are set.",
                        "schema": {"type": ["integer", "null"], "minimum": 1},
                    },
                    "networks": {
                        "label": "Networks",
                        "description": "Names of the accepted networks, as a list or as comma-separated text. "
                        "Default: any network.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "allow_legacy_signatures": {
                        "label": "Allow legacy signatures",
                        "description": "Whether to accept addresses that were signed in a legacy form, which does not "
                        "cover all fields. Default: no.",
                        "schema": {"type": ["boolean", "null"]},
                    },
                    "rules_not_before": {
                        "label": "Rules not before",
                        "description": "Oldest accepted date of the rules: a date such as 2026-01-31, or Unix time in "
                        "seconds. Default: no limit.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "effective_statuses": {
                        "label": "Status words of requests in effect",
                        "description": "Status words of requests in effect, as a list or as comma-separated text, "
                        "compared without regard to case. A request with an unknown word never counts as in effect. "
                        "Default: approved, from a published example.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "rejected_statuses": {
                        "label": "Status words of rejected requests",
                        "description": "Status words of rejected requests, as a list or as comma-separated text, "
                        "compared without regard to case. Default: rejected, declined, expired, canceled and "
                        "cancelled, some of them guesses. Your words replace the default.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "accept_fields": {
                        "label": "Accepted fields",
                        "description": "Keys of a request's payload that may have a value that was not requested, as "
                        "a list or as comma-separated text: keys that this service fills in, such as tnParticipantID. "
                        "Write an unknown key of a link after the link's own key, such as linkedWallets.owner. "
                        "envelope.action accepts an unknown action word. Default: none.",
                        "schema": {"type": ["string", "null"]},
                    },
                },
            }
        ],
    }
