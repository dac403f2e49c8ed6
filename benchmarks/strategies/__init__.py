"""Strategies of correlated noise: how small errors are and how fast they are found, what others say, what wins when."""
