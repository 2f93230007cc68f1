"""Reads the world: devices, host, disk, hub, prices."""
