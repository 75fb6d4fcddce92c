"""The scheduling engine in virtual time, with virtual nodes: log simulation, replay and reports."""
