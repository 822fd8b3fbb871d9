"""What GCKM is compared with."""
