"""Functions that a model may call: how they are declared, how they are run, what comes back."""
