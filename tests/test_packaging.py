"""The package as others get it: as a wheel, as an editable install, and straight from a checkout."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

SOURCES = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "MANIFEST.in",
    "xccl_emu",
    "corpus",
    "examples",
    "kernels",
    "protocols",
)

IMPORT_ALL = """
import importlib, pkgutil, sys, xccl_emu
names = [m.name for m in pkgutil.walk_packages(xccl_emu.__path__, "xccl_emu.")]
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in ("torch", "deep_ep"), error  # what scripts see needs them
assert {"xccl_emu.kernels", "xccl_emu.protocols"} <= set(names), names
print(xccl_emu.__file__)
print(*sorted(names))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of `command`; what it printed is in the failure if it ends with an error."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def files_below(package: Path) -> dict[str, bytes]:
    """What a package folder holds, by path from the folder above it; links are followed, byte code is left out."""
    found = {}
    for folder, folders, names in os.walk(package, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if not name.startswith("."):
                path = Path(folder, name)
                found[path.relative_to(package.parent).as_posix()] = path.read_bytes()
    return found


def modules_of(files: dict[str, bytes]) -> list[str]:
    """Dotted names of the modules and packages among `files`, without the top one; members of the corpus are files."""
    packages = {Path(name).parent for name in files if name.endswith("/__init__.py")}
    paths = [Path(name).with_suffix("") for name in files if name.endswith(".py") and Path(name).parent in packages]
    dotted = {".".join(path.parent.parts if path.name == "__init__" else path.parts) for path in paths}
    return sorted(dotted - {"xccl_emu"})


def new_environment(folder: Path) -> Path:
    """The interpreter of an empty environment at `folder`, which sees this one's dependencies but not its package.

    A path file adds the folder of the dependencies; path files in there, among them that of an editable install of
    this package, are not read.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def install(interpreter: Path, *what: str | Path) -> None:
    """Install without an index and without dependencies, into the environment of `interpreter`."""
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", "--no-build-isolation", *what, cwd=interpreter.parent)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A copy of what is packaged, links kept as links, so that builds leave nothing behind in the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        source = repository / name
        if source.is_dir():
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by way of the source distribution as ``python -m build`` does for a release."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_links_lead_to_the_top_level_folders(repository: Path) -> None:
    """The links in xccl_emu are relative, so that a checkout works wherever it lies."""
    for name in ("corpus", "examples", "kernels", "protocols"):
        link = repository / "xccl_emu" / name
        assert link.is_symlink(), f"{link} is not a link"
        assert link.readlink() == Path("..") / name


def test_wheel_holds_exactly_the_tree(wheel: Path, checkout: Path) -> None:
    """No subpackage, data file or marker is missing from the wheel, and nothing else is in it."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    tree = files_below(checkout / "xccl_emu")
    assert sorted(tree.keys() - packed.keys()) == []
    assert sorted(packed.keys() - tree.keys()) == []
    assert packed == tree
    assert "xccl_emu/py.typed" in packed


def test_plain_install_brings_the_testing_tools(wheel: Path) -> None:
    """`fuzz` and the pytest plugin need no extra: the wheel requires Hypothesis and pytest."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    plain = {re.split(r"[<>=; ]", line)[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert {"hypothesis", "pytest"} <= plain
    extras = {"bench", "browser", "cpp", "cuda", "dask", "dev", "fit", "parquet", "plot", "torch"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras


def test_wheel_and_sdist_carry_the_license(wheel: Path, repository: Path) -> None:
    """Both have the text of the repository, and the metadata name it."""
    text = (repository / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
        assert archive.read(name) == text
        metadata = archive.read(name.replace("licenses/LICENSE", "METADATA")).decode()
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        (member,) = (member for member in archive.getnames() if member.endswith("/LICENSE"))
        assert archive.extractfile(member).read() == text


def test_wheel_and_sdist_may_be_published(wheel: Path) -> None:
    """Their metadata, README among them, are such as an index renders without a warning."""
    check = (sys.executable, "-m", "twine", "check", "--strict")
    assert run(*check, *wheel.parent.iterdir(), cwd=wheel.parent).count("PASSED") == 2


TOUR = """
import os, pathlib, re
import tutorial, xccl_emu
assert "site-packages" in xccl_emu.__file__, xccl_emu.__file__
tutorial.normal = lambda text: re.sub(r"\\([^()]*site-packages/", "(", "".join(text.split()))  # lines break elsewhere
readme = tutorial.Tutorial(pathlib.Path("README.md").read_text("utf-8"), pathlib.Path.cwd(), dict(os.environ), [])
readme.run()
print(readme.examples, *readme.differences, sep="\\n")
"""


@pytest.mark.slow
def test_sessions_of_the_readme_run_from_the_wheel(wheel: Path, repository: Path, tmp_path: Path) -> None:
    """With the wheel installed and no checkout in sight, every session prints what stands there."""
    interpreter = new_environment(tmp_path / "env")
    install(interpreter, wheel)
    for path in (repository / "README.md", repository / "tests" / "testing" / "tutorial.py"):
        shutil.copy(path, tmp_path)
    examples, *differences = run(interpreter, "-c", TOUR, cwd=tmp_path).splitlines()
    assert (int(examples) >= 6, differences) == (True, [])


def imported_by(interpreter: Path, folder: Path, checkout: Path) -> Path:
    """Where the package lies of which the interpreter imports every module, all that the checkout has."""
    where, names = run(interpreter, "-c", IMPORT_ALL, cwd=folder).splitlines()
    assert names.split() == modules_of(files_below(checkout / "xccl_emu"))
    return Path(where).parent


def test_installed_wheel_works(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """From an empty environment with the wheel, every module imports and the command answers."""
    interpreter = new_environment(tmp_path / "env")
    install(interpreter, wheel)
    assert imported_by(interpreter, tmp_path, checkout).is_relative_to(tmp_path / "env")
    assert "Usage: xccl-emu" in run(tmp_path / "env" / "bin" / "xccl-emu", "--help", cwd=tmp_path)


def test_editable_install_works(checkout: Path, tmp_path: Path) -> None:
    """An editable install imports every module from the checkout, and sees an edit there at once."""
    copy = shutil.copytree(checkout, tmp_path / "checkout", symlinks=True)
    interpreter = new_environment(tmp_path / "env")
    install(interpreter, "--editable", copy)
    assert imported_by(interpreter, tmp_path, copy) == copy / "xccl_emu"
    (copy / "kernels" / "added_later.py").write_text("VALUE = 7\n")
    code = "from xccl_emu.kernels.added_later import VALUE; print(VALUE)"
    assert run(interpreter, "-c", code, cwd=tmp_path) == "7\n"
    assert "Usage: xccl-emu" in run(tmp_path / "env" / "bin" / "xccl-emu", "--help", cwd=tmp_path)


def test_checkout_works_without_installing(checkout: Path, tmp_path: Path) -> None:
    """With the checkout as the working folder and only the dependencies there, every module imports."""
    interpreter = new_environment(tmp_path / "env")
    assert imported_by(interpreter, checkout, checkout) == checkout / "xccl_emu"
    assert "Usage: xccl-emu" in run(interpreter, "-m", "xccl_emu", "--help", cwd=checkout)


def interpreter_of(version: str) -> Path:
    """A Python of that version, on the path or from pyenv; the test is skipped, saying so, where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        if done.stdout.startswith(f"Python {version}."):
            return Path(candidate)
    pytest.skip(f"no Python {version} here")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_clean_install_proves_a_protocol(wheel: Path, tmp_path: Path, version: str, kind: str) -> None:
    """In an empty environment of each version, wheel and sdist install with their dependencies and give a verdict."""
    run(interpreter_of(version), "-m", "venv", tmp_path / "env", cwd=tmp_path)
    (package,) = wheel.parent.glob(f"*.{kind}")
    pip = (tmp_path / "env" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, package, cwd=tmp_path)
    said = run(tmp_path / "env" / "bin" / "xccl-emu", "check", "sendrecv", "--states", "100000", cwd=tmp_path)
    assert "verified" in said
