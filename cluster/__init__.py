"""The Ray layer."""
