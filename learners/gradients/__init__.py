"""Contributions that clip: softmax regression and networks."""
