"""From a problem and a device to a plan, by configuration files."""
