"""The kernel evidence that needs a CUDA GPU. An H200 or any other that is no SM100 takes Flint's stock path, as XPU."""
