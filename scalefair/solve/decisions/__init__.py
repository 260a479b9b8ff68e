"""Decisions whose rates differ between groups by at most a limit: the rule, and what fits it to rows."""
