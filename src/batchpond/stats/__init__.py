"""What SQL cannot say well: rankings with honest intervals, ratings replayed, agreement between judges.

Pure functions over numpy arrays; nothing here reads a lake, a clock or a setting.
"""
