"""What a kernel says of itself, and what a GPU makes of that."""
