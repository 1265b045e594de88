"""The network in torch: encoders, the decision head, and how rows lie in memory while they pass through."""
