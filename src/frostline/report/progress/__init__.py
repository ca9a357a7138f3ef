"""What people see while runs are under way."""
