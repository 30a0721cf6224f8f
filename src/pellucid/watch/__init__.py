"""Looking at an engine while it runs: live on a terminal, once, recorded, played back, explained."""
