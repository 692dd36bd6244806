"""Trials side by side: who runs them, and where. Asking and telling stay with one driver."""
