"""What Airflow asks a provider package for. Loaded whenever Airflow is: imports nothing."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """
    Describe this provider to Airflow.

    :return: the provider metadata, as Airflow's ``provider.yaml`` schema has it.
    """
    return {
        "package-name": "airflow-provider-custody",
        "name": "Custody",
        "description": "Run digital-asset custody work as Airflow DAGs: health gates, whitelisting requests, webhooks.",
        "integrations": [
            {
                "integration-name": "Custody",
                "external-doc-url": "https://pypi.org/project/airflow-provider-custody/",
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
                    "airflow_custody.operators.webhook_creation",
                    "airflow_custody.operators.whitelist",
                    "airflow_custody.operators.whitelist_approval",
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
                "python-modules": ["airflow_custody.triggers.health", "airflow_custody.triggers.whitelist"],
            }
        ],
        "connection-types": [
            {
                "connection-type": "custody",
                "hook-name": "Custody",
                "hook-class-name": "airflow_custody.hooks.custody.CustodyHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema"],
                    "relabeling": {
                        "host": "Base URL",
                        "login": "User name (to sign in with a password)",
                        "password": "API token, or password, or secret of the API key",
                    },
                    "placeholders": {
                        "host": "https://custody.example.com",
                        "login": "empty for an API token or an API key",
                        "port": "only if the base URL does not name it",
                    },
                },
                # Unset is null everywhere: the form saves every field, and the client has the defaults.
                "conn-fields": {
                    "auth": {
                        "label": "Sign in by",
                        "description": "bearer, password or api_key. Default: what is filled in decides.",
                        "schema": {"type": ["string", "null"], "enum": ["bearer", "password", "api_key", None]},
                    },
                    "api_key_id": {
                        "label": "API key id",
                        "description": "Id of the API key whose secret is in the password field.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "timeout": {
                        "label": "Time-out",
                        "description": "Seconds for one whole call. Default: 30.",
                        "schema": {"type": ["number", "null"], "minimum": 0.001, "maximum": 86400},
                    },
                    "verify": {
                        "label": "Verify TLS",
                        "description": "true, false, or the path of a CA bundle. Default: true.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "client_cert": {
                        "label": "Client certificate",
                        "description": "Path of a PEM file with certificate and key, or two paths joined by a comma.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "proxy": {
                        "label": "Proxy",
                        "description": "URL of a proxy. Default: as HTTPS_PROXY and NO_PROXY say.",
                        "schema": {"type": ["string", "null"]},
                    },
                    "max_retries": {
                        "label": "Repeats of a call",
                        "description": "How often a call that is safe to repeat is repeated at most. Default: 3.",
                        "schema": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
                    },
                    "max_response_bytes": {
                        "label": "Greatest answer",
                        "description": "Size in bytes above which an answer is refused. Default: 67108864 (64 MiB).",
                        "schema": {"type": ["integer", "null"], "minimum": 1},
                    },
                    "allow_http": {
                        "label": "Allow plain HTTP",
                        "description": "Send the token unencrypted to another machine. Default: no.",
                        "schema": {"type": ["boolean", "null"]},
                    },
                },
            }
        ],
    }
