"""Ranks without processes."""

from __future__ import annotations


class Barrier:
    """An accelerator, or a process state, that counts how often all are waited for."""

    def __init__(self, num_processes: int, process_index: int) -> None:
        self.num_processes = num_processes
        self.process_index = process_index
        self.is_main_process = process_index == 0
        self.waits = 0

    def wait_for_everyone(self) -> None:
        self.waits += 1
