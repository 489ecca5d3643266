"""A product of host arrays that several devices compute together, each some tiles of the result."""
