"""Economics of speculation: acceptance, cycle inflation, break-even."""
