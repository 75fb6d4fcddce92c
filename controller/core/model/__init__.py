"""The data types of the engine: job, request, inputs, events and effects. Also the states of a job."""
