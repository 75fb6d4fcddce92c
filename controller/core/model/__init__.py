"""Job, request, inputs, events and effects: the vocabulary of the engine, and the job state machine."""
