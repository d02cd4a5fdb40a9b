"""Where responses rest, and how their events travel."""
