"""Makes vLLM believe that it runs on an Intel GPU: import before anything of vLLM. Its tensors stay on the CPU."""

from __future__ import annotations

import vllm.platforms
from vllm.platforms.xpu import XPUPlatform

vllm.platforms._current_platform = XPUPlatform()
