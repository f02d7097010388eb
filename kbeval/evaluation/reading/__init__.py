"""How labelled sets are laid out on disk: rows, values, labels, and what joins them."""
