"""Code on its way: from what a user sent to the src/ of a job."""
