"""What SQL cannot say well: rankings with honest intervals, ratings replayed, which pair to ask next.

Pure functions over numpy arrays; nothing here reads a lake, a clock or a setting. No Bayesian
Bradley-Terry is reported: Firth's estimate is already the mode under Jeffreys' prior, and a normal prior shrinks
scores by a spread that would differ from cell to cell, so that cells could not be compared. Adaptive rounds
choose their pairs with one (`adaptive`).
"""
