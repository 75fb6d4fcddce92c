"""The engine copy: processes with a copy of the engine, which answer questions while the controller continues
its work.
"""
