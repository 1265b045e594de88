"""Getting a process ready for an agent before it is told which: most of what a start takes is importing."""

from __future__ import annotations

import gc


def warm_up() -> None:
    """Imports what every torch agent needs.

    Nothing looks for garbage meanwhile, which makes up a quarter of the time otherwise; and what was imported stays, so no later
    collection looks at it again.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
        import transformers.masking_utils
        import transformers.modeling_layers
        import transformers.models.auto.modeling_auto  # noqa: F401

        import laya.agent  # noqa: F401
    finally:
        if collecting:
            gc.enable()
    gc.freeze()
