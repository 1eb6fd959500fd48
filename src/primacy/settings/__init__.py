"""The schema of the one file, its profiles, its checks and the arithmetic of the contract. Pure: everybody may import it."""
