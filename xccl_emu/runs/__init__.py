"""One layer of a mixture of experts by every protocol, side by side: `xccl-emu compare` without names."""
