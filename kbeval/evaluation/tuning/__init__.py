"""Which two cuts, at what price, and how sure: chosen exactly, judged on held-out labels."""
