"""How long products and passes take, beside their baselines."""
