"""The client of the controller's HTTP API: finds the controller, connects to the controller, and sends
requests.
"""
