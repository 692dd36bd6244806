"""Outside text of every kind, damaged in every way: no traceback but the errors a person can read, and no hang."""
