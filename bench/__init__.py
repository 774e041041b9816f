"""How fast Snakepit is, side by side with its peers in the same run; results are ratios, since machines differ."""
