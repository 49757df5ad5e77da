"""What stands around the image: compose overlays, other engines' forms of them, recipes, lint, and bringing it up."""
