class XpuFusedMoe:
    pass
