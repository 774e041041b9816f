"""Checks that need real hardware: run by hand on a machine that has it, `python3 -m tests.hardware.gpu`."""
