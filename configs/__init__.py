"""The configuration files that gemmport ships; `gemmport.planning.lookup` reads them."""
