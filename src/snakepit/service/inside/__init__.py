"""People inside running jobs: commands, connections, and the original client's ways to both."""
