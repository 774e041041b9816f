"""TLS to the service. With a certificate in `.pitconnect.txt` that one, and nothing else, is trusted; without, the
system's authorities are."""

from __future__ import annotations

import hashlib
import socket
import ssl

from snakepit.client.http import CONNECT_LIMIT_S, Address, NoConnection, reason
from snakepit.errors import SnakepitError

HOST_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH


class UntrustedCertificate(NoConnection):
    """The service showed a certificate that nothing here vouches for."""


def wrap(plain: socket.socket, address: Address, certificate: str) -> ssl.SSLSocket:
    """The socket with TLS on it. A pinned certificate is the service's own: then its host name says nothing more."""
    try:
        return _secured(plain, address, certificate)
    except ssl.SSLCertVerificationError as problem:
        if certificate and problem.verify_code in HOST_MISMATCH:
            return _pinned(address, certificate)
        words = problem.verify_message or "not trusted"
        raise UntrustedCertificate(
            f"Unable to reach pit: its certificate is not the expected one: {words} ({address.url})"
            if certificate
            else f"Unable to reach pit: its certificate is not trusted: {words} ({address.url}); see pit connect --help"
        ) from None
    except ssl.SSLError as problem:
        raise NoConnection(f"Unable to reach pit: no TLS there: {problem.reason} ({address.url})") from None
    except OSError as problem:
        raise NoConnection(f"Unable to reach pit: {reason(problem)} ({address.url})") from None


def _secured(plain: socket.socket, address: Address, certificate: str, by_name: bool = True) -> ssl.SSLSocket:
    try:
        context = _context(certificate)
        context.check_hostname = by_name
        return context.wrap_socket(plain, server_hostname=address.host)
    except BaseException:
        plain.close()
        raise


def _context(certificate: str) -> ssl.SSLContext:
    if not certificate:
        return ssl.create_default_context()
    try:
        context = ssl.create_default_context(cadata=certificate)
    except (ssl.SSLError, ValueError):
        raise SnakepitError("the certificate in .pitconnect.txt cannot be read (expected PEM)") from None
    # Self-made certificates of labs seldom carry the extensions that strict checks (Python 3.13) ask for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _pinned(address: Address, certificate: str) -> ssl.SSLSocket:
    """Without a look at the host name, but only if the very certificate is shown."""
    try:
        plain = socket.create_connection((address.host, address.port), timeout=CONNECT_LIMIT_S)
        secured = _secured(plain, address, certificate, by_name=False)
    except OSError as problem:
        raise NoConnection(f"Unable to reach pit: {reason(problem)} ({address.url})") from None
    shown = secured.getpeercert(binary_form=True)
    if shown is None or shown not in _all_of(certificate):
        secured.close()
        raise UntrustedCertificate(
            f"Unable to reach pit: its certificate is for another host than {address.host} ({address.url})"
        )
    return secured


def _all_of(certificates: str) -> list[bytes]:
    end = "-----END CERTIFICATE-----"
    parts = [part[part.index("-----BEGIN") :] + end for part in certificates.split(end) if "-----BEGIN" in part]
    return [ssl.PEM_cert_to_DER_cert(part) for part in parts]


def shown_certificate(address: Address) -> str:
    """The certificate that answers there, in PEM, whoever vouches for it."""
    try:
        return ssl.get_server_certificate((address.host, address.port), timeout=CONNECT_LIMIT_S)
    except OSError as problem:
        raise NoConnection(f"Unable to reach pit: {reason(problem)} ({address.url})") from None


def fingerprint(certificate: str) -> str:
    digest = hashlib.sha256(_all_of(certificate)[0]).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))
