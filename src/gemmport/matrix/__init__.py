"""The cross-vendor test matrix: every kernel with every type, op, shape and scalar, on every device of every runtime."""
