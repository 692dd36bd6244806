"""The project's own sampler: a Gaussian process that knows memory, saturation and noise."""
