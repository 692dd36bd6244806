"""autotune: the tuner of LLM inference servers that people leave running overnight."""

__version__ = "0.1.0"
