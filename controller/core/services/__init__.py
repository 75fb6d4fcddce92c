"""Services: keeps the wanted number of replicas running, restarts and moves them, records their health."""
