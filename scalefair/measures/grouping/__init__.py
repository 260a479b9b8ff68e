"""Groups of the sensitive attributes: mergeable statistics, metrics and their intervals."""
