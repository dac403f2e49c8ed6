"""The inverse: noise, steps or any other parameter for a target."""
