"""The pages for people: try the tasks, and read how to call them."""
