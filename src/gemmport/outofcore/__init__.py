"""Products whose operands have no room on a device: tile by tile, as a schedule of `gemmport.planning.schedule` says."""
