def flash_attn_varlen_func(*args, **kwargs):
    raise NotImplementedError
