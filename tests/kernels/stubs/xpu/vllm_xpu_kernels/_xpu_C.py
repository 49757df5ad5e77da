import torch

_LIBRARY = torch.library.Library("_xpu_C", "FRAGMENT")
for _name, _is in (("is_xe2_arch", True), ("is_xe3_arch", False)):
    _LIBRARY.define(f"{_name}() -> bool")
    _LIBRARY.impl(_name, lambda _is=_is: _is, "CompositeExplicitAutograd")
