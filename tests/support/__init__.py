"""Helpers of the tests: harnesses, real nodes, servers, doubles, planted defects, and the proofs of a release."""
