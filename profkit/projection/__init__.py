"""What-if: replay measured cycles with a change, on both arms."""
