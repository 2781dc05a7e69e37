"""Error codes: settings and the connection."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_CONFIGURATION = ("CustodyConfigurationError",)

GROUP = Group(
    "Settings and connection",
    (
        Entry(
            "connection-missing",
            "There is no such Airflow connection",
            "the Airflow connection 'custody_default' is not defined. Make a connection with this id and the type "
            "Custody.",
            "A task, or a command with --conn-id, names a connection that Airflow does not have. It may be in another "
            "environment or secrets backend, or its id may be mistyped. Or the environment variable that defines it "
            "cannot be read: Airflow takes that for no connection.",
            "Correct the environment variable, if the text names one: its JSON has a mistake, an unknown key, or a "
            "number where a text must be. Otherwise make the connection, or correct custody_conn_id (for a webhook's "
            "secret: secret_conn_id; for a signing key: the id given to ConnectionSigner). 'airflow connections get "
            "ID' shows what Airflow finds.",
            _CONFIGURATION,
        ),
        Entry(
            "connection-type",
            "The Airflow connection has another type",
            "Airflow connection 'custody_default', Connection Type: must be 'custody', not 'http'. Choose Custody "
            "there; outside the form, write conn_type 'custody'.",
            "The connection was made with another type, such as HTTP, whose fields have other meanings.",
            "Make a connection of the type Custody. Where it is a JSON text or a URI, the type is custody.",
            _CONFIGURATION,
        ),
        Entry(
            "connection-extra",
            "The connection's Extra cannot be read",
            "Airflow connection 'custody_default', Extra: is not a JSON object",
            "The field Extra holds something other than a JSON object, often because of single quotation marks or a "
            "comma at the end.",
            'Write a JSON object, such as {"timeout": 60}, or leave the field empty and use the form\'s own fields.',
            _CONFIGURATION,
        ),
        Entry(
            "extra-unknown",
            "The connection has an extra that is not known",
            "the extra 'time_out' is not known and has no effect. Do you mean 'timeout'? Correct or remove what is "
            "wrong.",
            "The name of an extra is mistyped, or another connection type has it. In a task this is a warning; the "
            "test of the connection and 'custody check' fail.",
            "Correct the name, or remove the extra. The reference lists all fields of a connection.",
            _CONFIGURATION,
        ),
        Entry(
            "base-url-wrong",
            "The base URL is missing or malformed",
            "Airflow connection 'custody_default', Base URL: the base URL is missing (an example: "
            "https://custody.example.com)",
            "The base URL is empty, has no host, or contains what does not belong there: white space, a user name, a "
            "query, or /api/rest/v1. Or one slash is missing, a part of the host's name is empty or too long, or "
            "Schema or Port contradict it.",
            "Write the service's own URL into Host (--base-url on the command line), such as "
            "https://custody.example.com. Leave Schema and Port empty.",
            _CONFIGURATION,
        ),
        Entry(
            "plain-http",
            "The token would travel in clear text",
            "the base URL is plain HTTP to custody.example.com: the token would travel in clear text; use https://, or "
            "set 'allow_http' if the network in between is yours",
            "The base URL begins with http:// and names another machine, or a proxy is set for plain HTTP.",
            "Write https://. If nobody else can read the network in between, set the extra allow_http to true.",
            _CONFIGURATION,
        ),
        Entry(
            "proxy-wrong",
            "The proxy's URL cannot be used",
            "'proxy' must be a URL like http://host.example.com:3128; a user name and a password in it must be "
            "percent-encoded, and be ISO-8859-1",
            "The extra proxy, or the environment variable HTTPS_PROXY or ALL_PROXY, is not a URL of a proxy: it begins "
            "with http:// or https://, and SOCKS is not supported. A password with a character such as @ or / must be "
            "percent-encoded.",
            "Correct the extra proxy of the connection, or the variable that the text names. Without a proxy, leave "
            "the extra empty.",
            _CONFIGURATION,
        ),
        Entry(
            "ca-bundle-unusable",
            "The CA bundle cannot be used",
            "'verify' names no usable CA bundle: /etc/ssl/private-ca.pem: No such file or directory",
            "The extra verify names a file that does not exist on this machine, cannot be read, or is not PEM.",
            "Put the bundle on every worker, triggerer and API server, and give its path in verify.",
            _CONFIGURATION,
        ),
        Entry(
            "client-cert-unusable",
            "The client certificate cannot be used",
            "'client_cert' cannot be used: /etc/ssl/client.pem: No such file or directory",
            "The extra client_cert names a file that does not exist on this machine, lacks the certificate or the "
            "key, or has a key that is encrypted or does not fit.",
            "Give the path of one PEM file with certificate and key, or the two paths separated by a comma. The key "
            "must not be encrypted.",
            _CONFIGURATION,
        ),
        Entry(
            "credentials-missing",
            "There are no credentials",
            "Airflow connection 'custody_default', Password: the API token is missing",
            "The connection has no token, password or API key, or the environment of the command has none.",
            "Fill in Password: the API token, the user's password, or the API key's secret. On the command line, set "
            "CUSTODY_TOKEN or use --token-stdin.",
            _CONFIGURATION,
        ),
        Entry(
            "credentials-conflict",
            "Two ways to authenticate are given",
            "Airflow connection 'custody_default', Authentication method (auth): a user name and an API key ID are "
            "filled in: leave one of them empty",
            "More than one way to authenticate is filled in, or the authentication method is not the one whose fields "
            "are filled in.",
            "Choose one. An API token: Password only. A user: Login and Password. An API key: its ID in the form's "
            "field and its secret in Password.",
            _CONFIGURATION,
        ),
        Entry(
            "credentials-malformed",
            "The credentials cannot be sent",
            "Airflow connection 'custody_default', Password: the API token begins with 'Bearer': give the token alone",
            "The token was pasted with 'Bearer' or a line break, or the API key's secret is not hexadecimal.",
            "Paste the bare token into Password. An API key's secret is hexadecimal digits only.",
            _CONFIGURATION,
        ),
        Entry(
            "setting-wrong",
            "A setting has a value that cannot be used",
            "Airflow connection 'custody_default', Timeout (timeout): must be a number from 0.001 to 86400, not 'soon'",
            "A setting of the connection, an option, or an argument of the client is out of its bounds or of another "
            "type.",
            "Correct the setting that the text names. The connection's fields and their bounds are in the reference.",
            _CONFIGURATION,
        ),
        Entry(
            "package-missing",
            "A Python package is missing",
            "signatures cannot be verified: the extra 'signing' is not installed. Run: pip install "
            "'airflow-provider-custody[signing]'",
            "What was asked for needs a package that comes only with one of the provider's extras.",
            "Run the command in the text, wherever the task, trigger or page runs, and restart Airflow there.",
            _CONFIGURATION,
        ),
    ),
)
