"""Who made a bundle: a signature of its manifest, made and verified by OpenSSH's ssh-keygen.

The manifest has the digest of every other file, so one signature stands for the whole bundle. Signers are listed as
ssh-keygen(1) describes under ALLOWED SIGNERS: a name, a public key and, if wanted, a period in which it is valid.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from xpulab import child
from xpulab.errors import InputError

NAMESPACE = "xpulab-bundle"
"""What ssh-keygen ties a signature to, so that one of another file format does not count here."""

LARGEST = 64 * 2**10
"""Bytes of a signature, those of certificates included."""

_SECONDS = 20.0


@dataclass(frozen=True)
class Signature:
    """What is known of the signature of a bundle.

    outcome: "none"; "unverified", when no signers were named; "valid"; "refused", when it is of other bytes or by another key.
    signer: the name in the file of signers, "" when it is not valid. key: kind and fingerprint as ssh-keygen prints them.
    reason: why it was refused, or "".
    """

    outcome: str
    signer: str = ""
    key: str = ""
    reason: str = ""

    def format(self) -> str:
        """One sentence for a person."""
        if self.outcome == "none":
            return "not signed: nothing proves who made it"
        if self.outcome == "unverified":
            return f"signed with {self.key}; whose key that is says --signers FILE"
        return f"signed by {self.signer} with {self.key}" if self.outcome == "valid" else f"SIGNATURE REFUSED: {self.reason}"


def sign(content: bytes, key: Path) -> bytes:
    """The signature of these bytes. key: a private key, or a public one whose private key is in the SSH agent.

    Raises InputError when there is no such key, when it needs a passphrase (an agent asks for it), or without ssh-keygen.
    """
    if not key.is_file():
        raise InputError(f"{key}: there is no such key; make one with: ssh-keygen -t ed25519 -f {key}")
    with tempfile.TemporaryDirectory(prefix="xpulab-sign-") as scratch:
        signed = Path(scratch, "manifest")
        signed.write_bytes(content)
        ran = _keygen("sign", "-n", NAMESPACE, "-f", str(key), str(signed))
        if ran.status != 0:
            raise InputError(
                f"{key}: cannot sign: {_why(ran)}; name a private key without passphrase, or a public one that ssh-agent holds"
            )
        return signed.with_name("manifest.sig").read_bytes()


def examine(content: bytes, signature: bytes | None, signers: Path | None) -> Signature:
    """What the signature of these bytes proves. signers: the allowed ones; None when nobody named them.

    When signers are named, a bundle without a signature is refused. Raises InputError when their file cannot be read.
    """
    if signers and not signers.is_file():
        raise InputError(
            f"{signers}: there is no such file of signers; each line has a name and a public key: ann@site ssh-ed25519 ..."
        )
    if signature is None:
        return Signature("refused", reason="it is not signed, and signers are named") if signers else Signature("none")
    with tempfile.TemporaryDirectory(prefix="xpulab-signature-") as scratch:
        stored, signed = Path(scratch, "manifest.sig"), Path(scratch, "manifest")
        stored.write_bytes(signature)
        signed.write_bytes(content)
        fits = _keygen("check-novalidate", "-n", NAMESPACE, "-s", str(stored), read=signed)
        key = "".join(re.findall(r"with (\S+ key \S+)", fits.output))
        if fits.status != 0:
            return Signature("refused", reason=f"it does not fit the manifest: {_why(fits)}")
        if not signers:
            return Signature("unverified", key=key)
        found = _keygen("find-principals", "-s", str(stored), "-f", str(signers))
        names = found.output.split("\n")[0].strip() if found.status == 0 else ""
        if not names:
            return Signature("refused", key=key, reason=f"{signers} names nobody with {key}: {_why(found)}")
        for name in names.split(","):
            verified = _keygen("verify", "-n", NAMESPACE, "-f", str(signers), "-I", name, "-s", str(stored), read=signed)
            if verified.status == 0:
                return Signature("valid", name, key)
        return Signature("refused", key=key, reason=f"{signers} does not allow {names} to sign: {_why(verified)}")


def _keygen(action: str, *arguments: str, read: Path | None = None) -> child.Ran:
    """Run ssh-keygen -Y. read: what it gets as its standard input; without one it has none, so it can ask for nothing."""
    try:
        if read is None:
            return child.run(["ssh-keygen", "-Y", action, *arguments], _SECONDS)
        with read.open("rb") as stream:
            return child.run(["ssh-keygen", "-Y", action, *arguments], _SECONDS, stdin=stream)
    except FileNotFoundError:
        raise InputError("there is no ssh-keygen: install OpenSSH's client (Debian: openssh-client), 8.2 or newer") from None


def _why(ran: child.Ran) -> str:
    """The last line that ssh-keygen wrote, or that it did not end."""
    if ran.status is None:
        return f"ssh-keygen did not end within {_SECONDS:.0f} s"
    lines = [line for line in (ran.errors + "\n" + ran.output).splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"ssh-keygen ended with exit code {ran.status}"
