"""What the pages that gemmport writes have in common: how one file is put together, how it looks, how tables sort."""
