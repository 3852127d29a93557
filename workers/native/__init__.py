"""What is computed in C: see `attention.h`. A machine without a compiler goes without it."""
