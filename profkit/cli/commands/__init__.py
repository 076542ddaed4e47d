"""One module per command. Each has ``register(app)``; heavy imports wait until the command runs."""
