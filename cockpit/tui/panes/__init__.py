"""What several screens share: lists with a cursor, text, bars, questions, the list of commands."""
