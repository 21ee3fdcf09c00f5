"""How to talk to one member cluster: plain Python, no Django."""
