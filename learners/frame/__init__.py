"""What all learners share: the plan, the fit, the handle on private records."""
