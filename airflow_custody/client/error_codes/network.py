"""Error codes: signing in, and the network."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_CONNECTION = ("CustodyConnectionError",)

SIGN_IN = Group(
    "Sign-in and roles",
    (
        Entry(
            "token-expired",
            "The API token has expired",
            "the API token expired at 2026-01-31 12:00:00 UTC; nothing was sent. Put a new token into the Airflow "
            "connection 'custody_default'.",
            "The token is a JWT, and the expiry in it has passed. The client reads that and does not send the token.",
            "Put a new token into the Password of the connection. If tokens of the service are short-lived, use a user "
            "with a password or an API key. If the token is new, set this machine's clock.",
            ("CustodyAuthenticationError",),
        ),
        Entry(
            "credentials-refused",
            "The service does not accept the credentials",
            "get current user failed: Unauthorized: token is not valid (GET /users/me, status 401). The token is "
            "wrong, revoked or has expired; it comes from the Airflow connection 'custody_default'.",
            "The service, or a gateway before it, responded with 401: the token, password or API key is wrong, revoked "
            "or for another installation. With an API key, this machine's clock may be wrong.",
            "Replace the credentials in the connection, then run 'custody check'. A user with two-factor "
            "authentication cannot sign in unattended: use an API key.",
            ("CustodyAuthenticationError",),
        ),
        Entry(
            "role-missing",
            "The user lacks a role",
            "list health checks failed: permission denied: missing role TPUser (GET /health, status 403, E900-403). "
            "The user of the Airflow connection 'custody_default' needs the role TPUser.",
            "The service knows the user and responded with 403: the user does not have a role that the operation "
            "needs. Or the test of a connection found that the user lacks a role, or cannot tell whether the user has "
            "one that --role asks for.",
            "Have an administrator of the service give the user the roles that the text names, or use a connection of "
            "another user. 'custody check' lists the user's roles and those that are missing.",
            ("CustodyPermissionError", "CustodyResponseError"),
        ),
    ),
)

NETWORK = Group(
    "Network",
    (
        Entry(
            "unreachable",
            "The service cannot be reached",
            "list health checks failed: custody.example.com cannot be reached: Connection refused; nothing was sent. "
            "Check the base URL of the Airflow connection 'custody_default', and that the service is up.",
            "Nothing listens at this host and port, the name cannot be resolved, or a firewall drops the connection.",
            "Check host and port of the base URL, then whether this machine reaches them: 'curl -v URL'. A worker in "
            "another network may need the extra proxy.",
            _CONNECTION,
            True,
        ),
        Entry(
            "tls-untrusted",
            "The service's certificate is not accepted",
            "list health checks failed: TLS: the certificate of custody.example.com was not accepted: unable to get "
            "local issuer certificate; nothing was sent. If its CA is private, give its bundle in 'verify' of the "
            "Airflow connection 'custody_default'.",
            "The certificate of the service, or of a proxy that is spoken to in TLS, was issued by a CA that this "
            "machine does not trust, is for another name, has expired, or is too weak.",
            "Do what the text says: it tells a private CA, an expired certificate, one that is not valid yet, one "
            "for another host, and one that no CA bundle makes acceptable apart. Do not set verify to false.",
            _CONNECTION,
        ),
        Entry(
            "tls-failed",
            "The TLS handshake failed",
            "list health checks failed: TLS: custody.example.com cannot be reached: sslv3 alert handshake failure; "
            "nothing was sent. If it asks for a client certificate, give its path in 'client_cert' of the Airflow "
            "connection 'custody_default'. Or no TLS version or cipher is common to it and this machine.",
            "The service, a gateway before it or a proxy broke off the TLS handshake. It may demand a client "
            "certificate, may not serve this host name, or no protocol version or cipher is common to both.",
            "Do what the text says. If the service wants a client certificate, give it in the extra client_cert. "
            "Otherwise ask those who run the service which versions of TLS it speaks.",
            _CONNECTION,
            True,
        ),
        Entry(
            "wrong-scheme",
            "https:// and http:// are mixed up",
            "list health checks failed: localhost:8080 does not speak TLS on this port; nothing was sent. Begin the "
            "base URL of the Airflow connection 'custody_default' with http://, or give the port that speaks HTTPS.",
            "The base URL, or the URL of the proxy, says https:// and the port speaks plain HTTP, or the other way "
            "round.",
            "Do what the text says: change the scheme or the port.",
            ("CustodyConnectionError", "CustodyRequestError"),
        ),
        Entry(
            "proxy-refused",
            "The proxy does not connect to the service",
            "list health checks failed: custody.example.com cannot be reached through the proxy proxy.example.com:3128"
            ": Tunnel connection failed: 407 Proxy Authentication Required; nothing was sent. Check 'proxy' of the "
            "Airflow connection 'custody_default', and that the proxy allows this host.",
            "The proxy was reached and refused: it wants a user name and a password, or does not allow this host.",
            "Write the proxy's user name and password into the URL in the extra proxy, or have the proxy's "
            "administrator allow the host.",
            _CONNECTION,
            True,
        ),
        Entry(
            "timed-out",
            "The response took too long",
            "list health checks failed: no complete response from custody.example.com within 30 s. If the service is "
            "only slow, raise 'timeout' of the Airflow connection 'custody_default'.",
            "The request was sent, and the whole response was not there in time. Or nothing was sent, as another "
            "sign-in with the same account did not end in time; the text says so.",
            "If the service is slow, raise the extra timeout (seconds). Otherwise look at the service's own state.",
            _CONNECTION,
            True,
        ),
        Entry(
            "connection-lost",
            "The connection broke",
            "list health checks failed: custody.example.com closed the connection without a response. If it asks for a "
            "client certificate, give its path in 'client_cert' of the Airflow connection 'custody_default'.",
            "The service, a proxy or a load balancer closed the connection before the response was complete. Some that "
            "ask for a client certificate do so when they get none.",
            "Usually nothing: what is safe to repeat is repeated. If it happens each time, the service may ask for a "
            "client certificate. If it happens often, compare the time-outs of proxies and load balancers with the "
            "extra timeout.",
            _CONNECTION,
            True,
        ),
        Entry(
            "rate-limited",
            "The service asks for fewer calls",
            "list health checks failed: Too Many Requests (GET /health, status 429). The service asks to wait 30 s.",
            "The service, or a gateway before it, responded with 429: it has had too many calls.",
            "Usually nothing: the next try waits as long as the service asks. Otherwise poll more rarely, or lower "
            "max_parallel of the task that applies a plan.",
            ("CustodyRateLimitError",),
            True,
        ),
        Entry(
            "service-failed",
            "The service failed",
            "list health checks failed: Service Unavailable (GET /health, status 503)",
            "The service, or a gateway before it, responded with a status of 500 or higher to a call that may be "
            "repeated.",
            "Usually nothing: the task is tried again if it has retries. If it goes on, ask those who run the "
            "service, with the time and the status.",
            ("CustodyServerError",),
            True,
        ),
    ),
)
