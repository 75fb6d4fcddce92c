"""Notifications: rules choose the notices that users and operators get, an outbox keeps the messages, and
sinks deliver them by mail, webhook or chat."""
