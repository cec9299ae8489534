"""What these tests share."""

from importlib.metadata import entry_points

PLUGIN = "xccl_emu.testing.plugin"


def plugin_arguments() -> list[str]:
    """Options that load the plugin, where the package is not installed with its entry point (or is not at all)."""
    loaded = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    return [] if loaded else ["-p", PLUGIN]
