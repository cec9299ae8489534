"""A script that uses PyTorch itself, and names of the device: all work, or are refused by name."""

import importlib
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo
from torch.profiler import ProfilerActivity, profile, schedule

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.client import CLOCK, ProfiledKernel

DEVICE = sys.argv[1]
here = getattr(torch, DEVICE)


@torch.library.custom_op("tests::more", mutates_args=())
def more(x: torch.Tensor) -> torch.Tensor:
    """One more."""
    return x + 1


def check_torch() -> None:
    """What is PyTorch's own."""
    assert more(torch.zeros(2, device=DEVICE)).tolist() == [1, 1]
    model = torch.nn.Linear(2, 2).to(DEVICE)
    optimizer = torch.optim.AdamW(getattr(model, DEVICE)().parameters())
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    model(torch.utils.checkpoint.checkpoint(lambda each: 2 * each, x, use_reentrant=False)).sum().backward()
    optimizer.step()
    assert torch.vmap(lambda each: each + 1)(torch.zeros(2)).tolist() == [1, 1]
    huge = torch.zeros((1 << 20, 1 << 16), dtype=torch.int64, device=DEVICE)  # half a terabyte
    huge[-1, -1] = 7
    assert (huge[-1, -1], huge[0, 0], huge.dtype) == (7, 0, torch.int64)
    assert torch.randn(4, device=DEVICE, generator=torch.Generator(device=DEVICE)).shape == (4,)
    assert isinstance(torch.default_generator, torch.Generator)
    assert torch.empty(4, pin_memory=True).pin_memory().shape == (4,)
    file = io.BytesIO()
    torch.save(torch.ones(2, device=DEVICE).to(0), file)
    file.seek(0)
    assert torch.load(file, map_location=DEVICE).tolist() == [1, 1]
    with torch.device(DEVICE), torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert torch.empty(3).shape == (3,)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(2)
    assert len(prof.key_averages()) > 0


def check_device() -> None:
    """Names of the device."""
    here.synchronize()
    with here.device(1), here.stream(here.Stream()):
        assert here.current_device() == 1
    assert here.current_device() == 0
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CUDA_VISIBLE_DEVICES" if DEVICE == "cuda" else "ASCEND_RT_VISIBLE_DEVICES", "4,5,7")
        assert here.device_count() == 3
    assert here.device_count() == 1 << 10
    assert here.get_device_properties(0).total_memory >= here.mem_get_info()[0] > 0
    assert (here.memory_allocated(), here.max_memory_reserved()) == (0, 0)
    here.Stream(priority=-1).wait_event(here.current_stream().record_event())
    assert here.get_device_name() == "xccl_emu"
    assert not here.is_current_stream_capturing()
    here.set_rng_state(here.get_rng_state())
    here.manual_seed_all(0)
    here.nvtx.range_push("part")
    for name in ("CUDAGraph", "graph", "memory_snapshot", "utilization", "MemPool"):
        with pytest.raises(ConfigError, match=f"torch.{DEVICE}.{name}: "):
            getattr(here, name)()


def check_profile() -> None:
    """The steps that a schedule keeps, as a table and as a trace, as scripts parse them."""
    activity = ProfilerActivity.CUDA if DEVICE == "cuda" else ProfilerActivity.PrivateUse1
    with profile(activities=[activity], schedule=schedule(wait=1, warmup=0, active=1, repeat=1)) as prof:
        for us in (7.0, 2.5):
            CLOCK.events += [ProfiledKernel("deep_ep::dispatch", 1.0, us), ProfiledKernel("other", 3.0, 1.0)]
            prof.step()
    (line,) = [line for line in prof.key_averages().table(sort_by="cuda_time_total").split("\n") if "dispatch" in line]
    assert line.split()[-2:] == ["2.500us", "1"]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        prof.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    assert np.array([each["dur"] for each in events]).tolist() == [2.5, 1.0]


def check_faces() -> None:
    """What is not in a face is refused by name; for `hasattr` it is not there."""
    import deep_ep

    assert not hasattr(deep_ep, "Nothing")
    with pytest.raises(ConfigError, match=r"deep_ep.Nothing: xccl_emu.doors.torch does not have it; it has Buffer"):
        _ = deep_ep.Nothing
    with pytest.raises(ModuleNotFoundError, match=r"deep_ep.nothing: xccl_emu.doors.torch does not have it"):
        importlib.import_module("deep_ep.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"uccl: xccl_emu.doors.torch does not have it: its runtime takes"):
        importlib.import_module("uccl.ep")
    with pytest.raises(ImportError, match=r"cannot import name 'align' .*faces"):
        exec("from deep_ep import align")


def check_helpers() -> None:
    """Helpers of DeepEP's scripts; and what stops its elastic tests has a reason."""
    import deep_ep
    from deep_ep.utils.math import align, ceil_div, count_bytes, create_grouped_scores, hash_tensors, safe_div

    assert (ceil_div(7, 3), ceil_div(6, 3), align(7, 3), safe_div(0, 0), safe_div(3, 2)) == (3, 2, 9, 0, 1.5)
    with pytest.raises(ZeroDivisionError):
        safe_div(1, 0)
    one, two = torch.tensor([1, 2], dtype=torch.int32), torch.ones(3)
    assert count_bytes(one, None, [two, (one,)]) == 8 + 12 + 8
    assert hash_tensors(one, None, (two, one)) == hash_tensors(two) == 3 * 0x3F800000
    scores = create_grouped_scores(torch.arange(1, 9).view(2, 4), torch.tensor([[0], [1]]), 2)
    assert scores.tolist() == [[1, 2, 0, 0], [0, 0, 7, 8]]
    with pytest.raises(ConfigError, match=r"deep_ep.ElasticBuffer.engram_fetch: .* does not have it; it has no kernel"):
        deep_ep.ElasticBuffer.engram_fetch(None)


def check_poison() -> None:
    """Every byte of what nobody filled is poison, in small and in large tensors, whatever others were filled with."""
    from xccl_emu.doors.torch.faces.common import poison, unfilled

    for shape in ((0, 3), (2, 3), (9, 1 << 20), (10, 1 << 20)):
        made = [unfilled(shape, dtype) for dtype in (torch.float32, torch.float32, torch.int64)]
        made[0].zero_()
        assert (made[1].view(torch.int32) == -1).all()
        assert (made[2] == -1).all()
        poison(made[0][:, ::2])
        assert made[0][:, ::2].isnan().all()
        assert (made[0][:, 1::2] == 0).all()


if __name__ == "__main__":
    check_poison()
    check_torch()
    check_device()
    check_profile()
    check_faces()
    if DEVICE == "cuda":
        check_helpers()
    print("passed")
