"""What users are promised, checked on rows that no model has seen, by measures written here."""
