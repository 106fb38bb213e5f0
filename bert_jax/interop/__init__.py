"""Other programs' files of BERT, in and out."""
