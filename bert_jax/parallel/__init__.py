"""Devices and hosts: meshes, shardings, collectives, processes."""
