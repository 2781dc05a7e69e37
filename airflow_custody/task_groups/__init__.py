"""Task groups: the usual order of tasks, already wired."""
