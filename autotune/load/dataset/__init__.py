"""Files that say what is asked: read, counted, and kept in a form that load workers can share."""
