"""The engine copy: processes with a copy of the engine, which answer questions beside the controller."""
