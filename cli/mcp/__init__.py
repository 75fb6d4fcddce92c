"""The MCP server of corral mcp: tools for language models, to read or to change the cluster."""
