"""Numbers for the norm kernels: inputs that hurt, references in plain torch, and how far two bf16 tensors lie apart.

Used on the CPU by the probes and as it is on a GPU.
"""

from __future__ import annotations

import torch

#: Hidden size and head size.
NORM_SIZES = (2048, 128)
#: The dense MLP's 6144 and the shared expert's 1024, split over 1, 2, 4 and 8 GPUs.
SILU_SIZES = (6144, 3072, 1536, 768, 1024, 512, 256, 128)
KINDS = ("random", "zeros", "denormals", "huge", "inf", "nan")


def rows(kind: str, count: int, width: int, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    """``count`` rows of bf16 numbers of one kind; the special ones stand at a few places among random ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator) * 3
    special = {
        "zeros": torch.tensor(0.0),
        "denormals": torch.tensor(2.0**-130),
        "huge": torch.tensor(3e38),
        "inf": torch.tensor(float("inf")),
        "nan": torch.tensor(float("nan")),
    }
    if kind in ("zeros", "denormals"):
        x = torch.sign(x) * special[kind]
    elif kind != "random":
        places = torch.rand(count, width, generator=generator) < 4 / width
        x = torch.where(places, torch.sign(x) * special[kind], x)
    return x.to(device, torch.bfloat16)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norm as the model defines it, calculated in ``dtype`` and rounded once; and the new residual."""
    s = x.to(dtype) if residual is None else x.to(dtype) + residual.to(dtype)
    out = s * (1 / torch.sqrt((s * s).mean(-1, keepdim=True) + eps)) * weight.to(dtype)
    return out.to(torch.bfloat16), s.to(torch.bfloat16)


def silu_and_mul(x: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """silu(left half) * right half, calculated in ``dtype`` and rounded once."""
    g, u = x.to(dtype).chunk(2, dim=-1)
    return (g / (1 + torch.exp(-g)) * u).to(torch.bfloat16)


def steps(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many bf16 numbers lie between the elements of a and b; 0 for two NaNs, a large number for one."""

    def place(x: torch.Tensor) -> torch.Tensor:
        bits = x.contiguous().view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    apart = (place(a) - place(b)).abs()
    one_nan = a.isnan() ^ b.isnan()
    return torch.where(a.isnan() & b.isnan(), 0, torch.where(one_nan, 1 << 20, apart))


def distance(a: torch.Tensor, b: torch.Tensor) -> dict[str, int]:
    """The largest number of steps, and how many of the elements differ at all."""
    apart = steps(a, b)
    return {"max": int(apart.max()), "differing": int((apart > 0).sum()), "elements": apart.numel()}
