"""What everything speaks of: problems, plans, devices, types, errors. Nothing here knows a backend."""
