"""What travels over HTTP, shared by service and client."""
