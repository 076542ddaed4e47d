"""``python -m profkit``."""

from profkit.cli.app import main

if __name__ == "__main__":
    main()
