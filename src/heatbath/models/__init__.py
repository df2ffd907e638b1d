"""Networks and their likelihoods."""
