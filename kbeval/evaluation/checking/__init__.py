"""Is a labelled set fit to be trusted: pools, agreement, leaks, label budget, probes."""
