"""What the notebooks import: a room for each chapter, named as its notebook without the number, and `shared` for all of them.

A room holds the helpers of its chapter, `pictures` (its figures) and `faults` (what its checks must detect). All of it runs
inside the notebook's kernel.
"""
