"""What is pending approval, of all kinds."""
