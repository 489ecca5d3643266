"""The fuzz campaign: random problems over everything that gemmport promises, each judged; see docs/verification.md."""
