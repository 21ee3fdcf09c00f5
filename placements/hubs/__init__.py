"""Live hubs: a wing that no other part of the console imports."""
