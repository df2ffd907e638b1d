"""The explorer: watch heat baths work, live, in the browser."""
