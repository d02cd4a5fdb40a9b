"""Python functions as models."""
