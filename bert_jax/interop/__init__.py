"""A BERT in the words of other libraries."""
