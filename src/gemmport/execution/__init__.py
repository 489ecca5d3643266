"""From a plan and arrays to work on a device."""
