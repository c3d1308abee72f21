"""From events to what people and machines read."""
