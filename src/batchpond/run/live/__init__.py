"""Live calls: one request, one call, every answer durable within a second, nothing answered asked again."""
