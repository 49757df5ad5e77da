def apply_rotary_emb(*args, **kwargs):
    raise NotImplementedError
