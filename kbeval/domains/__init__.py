"""What planner and executor are told: domain texts, knowledge map, prompts, tool schema."""
