"""How well images are given to owners: simulated, so that any number of owners can be had."""
