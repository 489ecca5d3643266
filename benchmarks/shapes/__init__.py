"""Files of shapes, and suites of them for `gemmport bench`; `gemmport.cli.suites` reads them."""
