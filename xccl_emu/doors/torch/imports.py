"""What a script imports under names of others, and what is put into PyTorch when it is imported."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

DEVICE = "XCCL_EMU_TORCH_DEVICE"
"""Environment variable: ``"npu"`` or ``"cuda"``, the device that is meant when a script names one."""
_CPU = "https://download.pytorch.org/whl/cpu"
_FACES = {
    "npu": {"deep_ep": "ascend", "deep_ep.buffer": "ascend", "torch_npu": "torch_npu"},
    "cuda": {
        "deep_ep": "deepep", "deep_ep.utils": "utils", "deep_ep.utils.envs": "utils", "deep_ep.utils.math": "utils",
        "deep_ep.utils.testing": "utils", "deep_ep.utils.gate": "scores", "deep_ep.utils.refs": "refs",
        "nvshmem": "nvshmem", "nvshmem.core": "nvshmem", "cuda.core.experimental": "nvshmem", "cuda.core": "nvshmem",
        "cuda": "nvshmem", "mooncake": "mooncake", "mooncake.mooncake_ep_buffer": "mooncake", "mooncake.pg": "mooncake",
    },
}  # fmt: skip
"""By device: a name that scripts import, and the module of `faces` that it means."""
_REFUSED = {
    "uccl": "its runtime takes addresses of device memory, and threads that send; its package deep_ep is like DeepEP's",
}
"""What scripts import and is not here, with the reason."""


class _Face(importlib.abc.Loader):
    """Has a module of ours for one of others."""

    def __init__(self, face: str) -> None:
        self._face = face

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        face = importlib.import_module(f"xccl_emu.doors.torch.faces.{self._face}")
        vars(module).update({name: value for name, value in vars(face).items() if not name.startswith("__")})
        module.__file__ = face.__file__  # which an import of a name that is not there is answered with
        own = getattr(face, "__all__", [name for name in vars(face) if not name.startswith("_")])

        def missing(name: str) -> None:
            """Refuse a name; what does so imports PyTorch, which may be importing this module."""
            names = importlib.import_module("xccl_emu.doors.torch.names")
            names.missing(module.__name__, lambda: sorted(own))(name)

        module.__dict__["__getattr__"] = missing


class _Patched(importlib.abc.Loader):
    """Loads PyTorch as ever, and then puts the emulator's devices into it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        importlib.import_module("xccl_emu.doors.torch.device").install(os.environ[DEVICE])


class _FaceFinder(importlib.abc.MetaPathFinder):
    def __init__(self, faces: dict[str, str]) -> None:
        self._faces, self._torch = faces, True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._faces:
            return importlib.machinery.ModuleSpec(fullname, _Face(self._faces[fullname]), is_package=True)
        if fullname in _REFUSED:
            text = f"{fullname}: xccl_emu.doors.torch does not have it: {_REFUSED[fullname]}"
            raise ModuleNotFoundError(text, name=fullname)
        parent = fullname.rpartition(".")[0]
        if parent in self._faces:
            has = ", ".join(name for name in self._faces if name.startswith(parent))
            text = f"{fullname}: xccl_emu.doors.torch does not have it; it has {has}"
            raise ModuleNotFoundError(text, name=fullname)
        if fullname == "torch" and self._torch:
            self._torch = False  # the next one is asked of the others
            spec = importlib.util.find_spec("torch")
            if spec is None:
                how = f"pip install torch --index-url {_CPU}"
                raise ModuleNotFoundError(f"PyTorch is not installed: {how}", name="torch")
            if spec.loader is not None:
                spec.loader = _Patched(spec.loader)
            return spec
        return None


def install() -> None:
    """Have this process import faces, by the device that the environment names."""
    sys.meta_path.insert(0, _FaceFinder(_FACES[os.environ[DEVICE]]))
