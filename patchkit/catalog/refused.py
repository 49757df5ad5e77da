"""What a manifest refuses of an environment, as findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchkit.catalog.model import RefusedEnv
from patchkit.catalog.settings import refused_settings, setting_remedy
from patchkit.findings import Finding


def setting_findings(refused: Sequence[RefusedEnv], env: Mapping[str, str], where: str) -> list[Finding]:
    """An error for each setting of ``env`` under which the series must not be used; ``where`` is whose it is."""
    return [
        Finding("environment-refused", "error", said, where, remedy=setting_remedy(name))
        for name, said in refused_settings(dict(env), [(one.name, list(one.values), one.why) for one in refused])
    ]
