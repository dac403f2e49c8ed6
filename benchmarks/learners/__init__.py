"""What the learners reach on real data, and what a private step costs."""
