"""What the tuner itself takes of a trial."""
