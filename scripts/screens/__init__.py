"""Pictures of a terminal, for draw_screens.py."""
