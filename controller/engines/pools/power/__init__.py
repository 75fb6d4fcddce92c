"""Machine pools of hosts that are switched on and off through their BMCs, by Redfish or IPMI."""
