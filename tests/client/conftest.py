from __future__ import annotations

import pytest
import trustme
from authorities import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "server.pem")
    )
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    return authority, str(folder / "ca.pem"), str(folder / "server.pem")
