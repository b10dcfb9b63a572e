"""Memory classes of agent frameworks. Each module needs its framework and is imported by name, such as ctxpage.adapters.anthropic."""
