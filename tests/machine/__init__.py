"""Tests of the machine: what each instruction does, what is refused, and what every order and policy must keep."""
