"""As much of AMD's management library as vLLM asks before it believes in an AMD GPU: one of STUB_GFX."""

import os


class AmdSmiException(Exception):
    pass


class AmdSmiMemoryType:
    VRAM = 0


def amdsmi_init():
    pass


def amdsmi_shut_down():
    pass


def amdsmi_get_processor_handles():
    return ["gpu0"]


def amdsmi_get_gpu_asic_info(handle):
    return {"target_graphics_version": os.environ["STUB_GFX"], "device_id": "0x74a1", "market_name": "AMD Instinct"}


def amdsmi_get_gpu_device_uuid(handle):
    return "00000000-0000-0000-0000-000000000000"


def amdsmi_get_gpu_memory_total(handle, kind):
    return 192 * 1024**3


def amdsmi_topo_get_link_type(a, b):
    return {"hops": 1, "type": 2}


def amdsmi_topo_get_numa_node_number(handle):
    return 0
