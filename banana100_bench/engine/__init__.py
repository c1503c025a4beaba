"""How scoring uses the machine: what it has, workers, and who runs what and when; and the same on Ray."""
