"""Outbound network and nothing else."""
