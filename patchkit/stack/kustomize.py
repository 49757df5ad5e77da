"""A kustomize component with the patched image or the patched files: the road to a cluster.

https://github.com/kubernetes-sigs/kustomize/blob/master/examples/components.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.errors import Refused
from patchkit.images.edit import FINGERPRINT
from patchkit.stack import yamltext
from patchkit.stack.overlay import OverlayMount, PinnedImage

#: A ConfigMap holds no more: https://kubernetes.io/docs/concepts/configuration/configmap/
MAX_CONFIG_MAP = 1024 * 1024
_NAME = "patchkit-files"


def image_component(name: str, image: PinnedImage, fingerprint: str, header: str) -> dict[str, bytes]:
    """The files of a component that runs the derived image instead of the one called ``name`` (without tag).

    Raises:
        patchkit.errors.Refused: ``local-image``, no node could pull it.
    """
    repository, at, digest = image.name.partition("@")
    if image.local or not at:
        raise Refused(
            "local-image",
            "the image is known to this engine alone, and no node of a cluster could pull it",
            where=image.name,
            remedy="push it first: docker tag IMAGE REGISTRY/NAME && docker push REGISTRY/NAME",
        )
    body: dict[str, yamltext.Node] = {
        **_head(),
        "images": [{"name": name, "newName": repository, "digest": digest}],
        "patches": [{"path": "annotations.yaml", "target": {"kind": "Deployment"}}],
    }
    patch = _deployment({FINGERPRINT: fingerprint}, {})
    return _files(header, body, {"annotations.yaml": patch})


def mount_component(
    mounts: Sequence[OverlayMount], data: Mapping[str, bytes], fingerprint: str, container: str, header: str
) -> dict[str, bytes]:
    """The files of a component that mounts the patched files into ``container`` of every Deployment. ``data`` maps a
    mount's source to its bytes.

    A ConfigMap's name carries the hash of its content, so a change rolls out; a file mounted by ``subPath`` never
    changes under a running process.

    Raises:
        patchkit.errors.Refused: ``too-large-for-configmap``.
    """
    keys = {mount.source: f"{number}-{mount.target.rpartition('/')[2]}" for number, mount in enumerate(mounts)}
    size = sum(len(data[mount.source]) for mount in mounts)
    if size > MAX_CONFIG_MAP:
        raise Refused(
            "too-large-for-configmap",
            f"the patched files take {size} bytes, and a ConfigMap holds {MAX_CONFIG_MAP}",
            remedy="deliver an image: --mode image",
        )
    body: dict[str, yamltext.Node] = {
        **_head(),
        "configMapGenerator": [{"name": _NAME, "files": [f"{key}=files/{key}" for key in keys.values()]}],
        "patches": [{"path": "mounts.yaml", "target": {"kind": "Deployment"}}],
    }
    shown: list[yamltext.Node] = [
        {"name": _NAME, "mountPath": mount.target, "subPath": keys[mount.source], "readOnly": True} for mount in mounts
    ]
    patch = _deployment(
        {FINGERPRINT: fingerprint},
        {
            "containers": [{"name": container, "volumeMounts": shown}],
            "volumes": [{"name": _NAME, "configMap": {"name": _NAME}}],
        },
    )
    files = _files(header, body, {"mounts.yaml": patch})
    return {**files, **{f"files/{keys[mount.source]}": data[mount.source] for mount in mounts}}


def _head() -> dict[str, yamltext.Node]:
    return {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}


def _deployment(annotations: Mapping[str, str], spec: Mapping[str, yamltext.Node]) -> dict[str, yamltext.Node]:
    template: dict[str, yamltext.Node] = {"metadata": {"annotations": dict(annotations)}}
    if spec:
        template["spec"] = spec
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {"template": template},
    }


def _files(
    header: str, body: Mapping[str, yamltext.Node], patches: Mapping[str, Mapping[str, yamltext.Node]]
) -> dict[str, bytes]:
    texts = {"kustomization.yaml": yamltext.comment(header) + yamltext.block(body)}
    texts |= {name: yamltext.block(patch) for name, patch in patches.items()}
    return {name: text.encode() for name, text in texts.items()}
