"""What documents, examples and the repository itself say is compared with the program, and run."""
