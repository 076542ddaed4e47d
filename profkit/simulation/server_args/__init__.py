"""Server arguments by release: names in order, with the values of a GPU server without speculation."""
