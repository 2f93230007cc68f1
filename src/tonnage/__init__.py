"""tonnage: plan, deploy, run, verify, watch and diagnose large language models, with error bars."""

__version__ = "0.1.0"
