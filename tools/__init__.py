"""Scripts of the repository; nothing here is installed."""
