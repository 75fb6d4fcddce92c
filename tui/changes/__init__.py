"""Changes the cluster when the user presses a key: asks for confirmation, sends the request and shows the
result.
"""
