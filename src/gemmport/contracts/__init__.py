"""The contracts of kernels (parameters, rules, launches), and the models of GPUs that they choose by."""
