"""The room of the chapter moe: Mixture of experts."""
