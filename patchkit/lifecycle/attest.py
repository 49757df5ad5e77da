"""A delivery as an in-toto statement, ready for signing tools (cosign, in-toto, sigstore).

Statement: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md; predicate: SLSA provenance v1,
https://slsa.dev/spec/v1.0/provenance.
"""

from __future__ import annotations

from typing import Any

from patchkit import __version__
from patchkit.deliver.receipt import Receipt
from patchkit.errors import Refused
from patchkit.images.model import Identity

_BUILD_TYPE = "urn:patchkit:apply:1"
_BUILDER = "urn:patchkit"


def statement(receipt: Receipt) -> dict[str, Any]:
    """The statement over the derived image: which origin, which patches, which files came out.

    Raises:
        patchkit.errors.Refused: ``no-derived-image``: patches that are mounted leave no image that could be signed.
    """
    if receipt.kind != "image":
        raise Refused(
            "no-derived-image",
            f"a delivery by {receipt.kind} has no derived image that could be signed",
            where=receipt.delivered,
            remedy=f"patchkit apply --image {receipt.origin} --mode image",
        )
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": receipt.delivered.partition(":")[2], "digest": _digest(receipt.delivered_identity)}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"image": receipt.origin, "manifest": receipt.manifest},
                "internalParameters": {
                    "package": receipt.package,
                    "version": receipt.package_version,
                    "fingerprint": receipt.fingerprint,
                    "files": {file.path: {"pre": file.pre, "post": file.post} for file in receipt.files},
                },
                "resolvedDependencies": [
                    {"name": "origin", "uri": receipt.origin, "digest": _digest(receipt.origin_identity)},
                    *({"name": f"patch:{patch.id}", "digest": {"sha256": patch.sha256}} for patch in receipt.patches),
                ],
            },
            "runDetails": {"builder": {"id": _BUILDER, "version": {"patchkit": __version__}}},
        },
    }


def _digest(identity: Identity) -> dict[str, str]:
    """The digest that verifiers ask for: the manifest's where the image has one, else the config's."""
    algorithm, _, value = (identity.manifest or identity.config).partition(":")
    return {algorithm: value}
