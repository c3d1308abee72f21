"""Certificates for servers on the loopback address, from a CA made for the occasion by ``trustme``."""

from dataclasses import dataclass
from pathlib import Path

from testbed.server import HOST


@dataclass(frozen=True)
class Certificates:
    """The files: the CA's certificate, and one certificate with its key that a server and a client may both show."""

    ca_file: Path
    cert_file: Path
    key_file: Path


def issue(directory: Path, *names: str) -> Certificates:
    """Make a CA and a certificate for the loopback address, ``localhost`` and ``names``; write them to the folder."""
    import trustme

    files = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    ca = trustme.CA()
    certificate = ca.issue_cert(HOST, "localhost", *names)
    ca.cert_pem.write_to_path(str(files.ca_file))
    certificate.private_key_pem.write_to_path(str(files.key_file))
    for number, part in enumerate(certificate.cert_chain_pems):
        part.write_to_path(str(files.cert_file), append=number > 0)
    return files
