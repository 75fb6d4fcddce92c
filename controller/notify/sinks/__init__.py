"""The sinks of notifications: mail servers, webhooks, and the chat services Slack, Mattermost and ntfy."""
