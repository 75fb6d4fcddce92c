"""Notifications: rules choose the notices that users and operators get, an outbox keeps the messages until
delivery, and sinks deliver the messages by mail, webhook or chat."""
