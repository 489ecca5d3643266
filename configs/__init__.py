"""The configuration files that gemmport ships; `gemmport.config` reads them."""
