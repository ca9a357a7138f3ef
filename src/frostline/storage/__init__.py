"""Files that are written whole or not at all: finished runs and cached prefix states."""
