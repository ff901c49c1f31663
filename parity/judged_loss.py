"""The name of the column that is judged, in every record: the cross-entropy in nats a token,
without auxiliary terms.

A trainer may log it as `loss` alone. Where it logs `lm_loss` as well, `loss` is the total, with its
auxiliary terms, and is kept as `total_loss`.
"""

JUDGED_LOSS = "lm_loss"
