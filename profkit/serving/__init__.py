"""What server logs mean: speed by batch size, acceptance, step time, what went wrong."""
