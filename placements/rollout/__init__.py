"""The rollout core: what may happen next on the clusters of a placement. Data in, answers out."""
