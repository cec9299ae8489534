"""What every part of the package takes for granted: errors, words, options, output, and the page of a run."""
