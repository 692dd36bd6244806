"""A simulated inference server: the demo's engine, the tests' fault double, the surface of the search benchmark."""
