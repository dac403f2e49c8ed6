"""Measurements that write ``results/``; run from a checkout, installed nowhere."""
