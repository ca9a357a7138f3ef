"""What people see while runs are running."""
