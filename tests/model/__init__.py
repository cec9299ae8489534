"""An independent model of the machine, its orders and its races, and what the emulator says of the same programs."""
