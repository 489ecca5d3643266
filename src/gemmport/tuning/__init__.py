"""Which tile sizes are the fastest on a device: candidates are tried in a process of their own, Optuna leads the search."""
